#include "gc3/ir/image.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <type_traits>
#include <utility>

#include "gc3/base/errors/files.h"
#include "gc3/base/mix64.h"
#include "gc3/base/text.h"
#include "gc3/ir/builder.h"
#include "gc3/ir/file.h"
#include "gc3/ir/printer.h"
#include "gc3/ir/text_reader.h"

namespace gc3::ir {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the image is little-endian and written as it lies in memory");

using Bytes = std::span<const std::byte>;

// The high byte and the line ends reveal a file that was transferred as text.
constexpr std::array<char, 8> kMagic = {'\x89', 'G', 'C', '3', '\r', '\n', '\x1a', '\n'};

// The file is the header, the name, the custom collective if there is one, the arrays of the program, from version 3 on
// the switch groups of each instruction, and the table of source lines if there is one; in version 4, then what the
// program computes, in version 5 its symmetry, as lines of the text form; version 5 has one rank's steps. The counts
// determine where each array begins, so no part of a file can point outside it or share data with another part.
struct Header {
  std::array<char, 8> magic = kMagic;
  std::uint32_t version = kImageVersion;
  std::uint32_t source_bytes = 0;  // of the table of source lines; in version 1: 0
  std::uint64_t checksum = 0;      // of everything after it
  std::uint64_t file_bytes = 0;
  std::uint32_t name_bytes = 0;
  std::uint32_t ranks = 0;  // of the collective
  std::uint32_t threadblocks = 0;
  std::uint32_t instructions = 0;
  std::uint32_t dependencies = 0;
  std::uint32_t instances = 0;
  std::uint32_t slots = 0;
  std::uint32_t chunks = 0;  // of the collective, after splitting
  std::uint32_t root = 0;
  std::uint32_t split = 0;
  std::uint8_t kind = 0;
  std::uint8_t protocol = 0;
  std::uint8_t in_place = 0;
  std::uint8_t reserved_byte = 0;
  std::uint32_t custom_name_bytes = 0;
  std::uint64_t custom_begins = 0;  // entries of CustomCollective::begin; 0: not custom
  std::uint64_t custom_terms = 0;
};
static_assert(sizeof(Header) == 96 && std::is_trivially_copyable_v<Header>);
constexpr std::size_t kChecksummedFrom = 24;
static_assert(offsetof(Header, file_bytes) == kChecksummedFrom);

bool of_classes(const Header& h) { return h.version == kImageVersionOfClasses; }
bool has_groups(const Header& h) { return h.version >= kImageVersionWithGroups && !of_classes(h); }
std::uint32_t described(const Header& h) { return of_classes(h) ? 1 : h.ranks; }

struct RankRecord {
  std::uint32_t tb_count;
  std::uint32_t scratch_chunks;
};
struct ThreadblockRecord {
  std::uint32_t send_peer;
  std::uint32_t recv_peer;
  std::uint32_t channel;
  std::uint32_t instruction_count;
};
struct InstructionRecord {
  std::uint8_t opcode;
  std::uint8_t src_buffer;
  std::uint8_t dst_buffer;
  std::uint8_t has_dependents;
  std::uint32_t src_chunk;
  std::uint32_t dst_chunk;
  std::uint32_t count;
  std::uint32_t dep_count;
};
struct AliasRecord {
  std::int64_t offset;  // as in CustomCollective::alias
  std::uint64_t exists;
};
static_assert(sizeof(RankRecord) == 8 && sizeof(ThreadblockRecord) == 16 && sizeof(InstructionRecord) == 20);
static_assert(sizeof(Dependency) == 8 && sizeof(model::InputChunk) == 8 && sizeof(AliasRecord) == 16);
static_assert(sizeof(Switched) == 8);

// Every step is a bijection of the state and of the word, so changing one word always changes the result.
std::uint64_t checksum(Bytes bytes) {
  std::uint64_t state = 0x9e3779b97f4a7c15U ^ bytes.size();
  while (!bytes.empty()) {
    const std::size_t n = bytes.size() < 8 ? bytes.size() : 8;
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data(), n);
    state = std::rotl(state ^ word, 29) * 0xbf58476d1ce4e5b9U;
    bytes = bytes.subspan(n);
  }
  return mix64(state);
}

class Writer {
 public:
  explicit Writer(std::size_t size) { bytes_.reserve(size); }

  template <class T>
  void put(const T& record) {
    put_array(std::span(&record, 1));
  }
  template <class T>
  void put_array(std::span<const T> records) {
    static_assert(std::is_trivially_copyable_v<T>);
    const Bytes raw = std::as_bytes(records);
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }
  std::vector<std::byte>& bytes() { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

// Reads records whose total size has been checked against the header.
class Reader {
 public:
  explicit Reader(Bytes bytes) : rest_(bytes) {}

  template <class T>
  T take() {
    static_assert(std::is_trivially_copyable_v<T>);
    T record;
    std::memcpy(&record, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return record;
  }
  template <class T>
  std::vector<T> take_array(std::size_t count) {
    std::vector<T> records(count);
    if (count != 0) std::memcpy(records.data(), rest_.data(), count * sizeof(T));
    rest_ = rest_.subspan(count * sizeof(T));
    return records;
  }
  std::string take_string(std::size_t count) {
    std::string text(reinterpret_cast<const char*>(rest_.data()), count);
    rest_ = rest_.subspan(count);
    return text;
  }

 private:
  Bytes rest_;
};

// The size that the counts of the header imply. No sum of 32-bit counts of small records overflows; the two 64-bit
// counts are compared with the size of the file first.
std::optional<std::uint64_t> expected_bytes(const Header& h, std::uint64_t available) {
  if (h.custom_begins > available || h.custom_terms > available) return std::nullopt;
  std::uint64_t size = sizeof(Header) + std::uint64_t{h.name_bytes} + h.custom_name_bytes;
  if (h.custom_begins != 0) {
    size += std::uint64_t{h.ranks} * (4 + 4 + sizeof(AliasRecord));
    size += h.custom_begins * 8 + h.custom_terms * sizeof(model::InputChunk);
  }
  size += std::uint64_t{described(h)} * sizeof(RankRecord) + std::uint64_t{h.threadblocks} * sizeof(ThreadblockRecord);
  size +=
      std::uint64_t{h.instructions} * sizeof(InstructionRecord) + std::uint64_t{h.dependencies} * sizeof(Dependency);
  if (has_groups(h)) size += std::uint64_t{h.instructions} * sizeof(Switched);
  return size + h.source_bytes;
}

Diagnostic corrupt(const std::string& why) { return {ErrorCode::CorruptProgram, why}; }

Result<Header> read_header(Bytes bytes) {
  Header h;
  const std::size_t seen = bytes.size() < kMagic.size() ? bytes.size() : kMagic.size();
  if (seen == 0 || std::memcmp(bytes.data(), kMagic.data(), seen) != 0) {
    return Diagnostic(ErrorCode::NotAProgram, "the file does not begin like a program image");
  }
  if (bytes.size() < sizeof(Header)) return corrupt("the file ends within its header");
  std::memcpy(&h, bytes.data(), sizeof(Header));
  if (h.version < kImageVersion || h.version > kImageVersionOfClasses) {
    return Diagnostic(ErrorCode::BadVersion, "the file has version " + std::to_string(h.version) +
                                                 ", this gc3 reads versions " + std::to_string(kImageVersion) + " to " +
                                                 std::to_string(kImageVersionOfClasses));
  }
  if (h.file_bytes != bytes.size()) {
    return corrupt("the file has " + std::to_string(bytes.size()) + " bytes, its header says " +
                   std::to_string(h.file_bytes));
  }
  if (h.checksum != checksum(bytes.subspan(kChecksummedFrom))) return corrupt("the checksum is wrong");
  const std::optional<std::uint64_t> expected = expected_bytes(h, bytes.size());
  if (!expected || *expected > bytes.size() || (h.version < kImageVersionWithCompute && *expected != bytes.size())) {
    return corrupt("the counts do not match the size of the file");
  }
  if (h.reserved_byte != 0 ||
      (h.version < kImageVersionWithGroups && (h.source_bytes != 0) != (h.version == kImageVersionWithSource)))
    return corrupt("a reserved field is in use");
  if (h.kind >= model::kCollectiveNames.size()) return corrupt("unknown collective " + std::to_string(h.kind));
  if (h.protocol >= model::kProtocolNames.size()) return corrupt("unknown protocol " + std::to_string(h.protocol));
  if (h.in_place > 1) return corrupt("a flag is neither 0 nor 1");
  const bool custom = static_cast<model::CollectiveKind>(h.kind) == model::CollectiveKind::custom;
  if (custom != (h.custom_begins != 0) || (!custom && (h.custom_terms != 0 || h.custom_name_bytes != 0))) {
    return corrupt("the kind of the collective and its custom data do not match");
  }
  if (h.split == 0 || h.chunks % h.split != 0) return corrupt("the chunks are not a multiple of the split");
  return h;
}

Result<model::CustomCollective> read_custom(const Header& h, Reader& in, model::CustomCollective data) {
  data.name = in.take_string(h.custom_name_bytes);
  if (!is_utf8(data.name)) return corrupt("the name of its collective is not UTF-8");
  data.input_chunks = in.take_array<std::uint32_t>(h.ranks);
  data.output_chunks = in.take_array<std::uint32_t>(h.ranks);
  for (const AliasRecord& a : in.take_array<AliasRecord>(h.ranks)) {
    if (a.exists > 1 || (a.exists == 0 && a.offset != 0)) return corrupt("an alias is malformed");
    data.alias.push_back(a.exists != 0 ? std::optional(a.offset) : std::nullopt);
  }
  data.begin = in.take_array<std::uint64_t>(h.custom_begins);
  data.terms = in.take_array<model::InputChunk>(h.custom_terms);
  return data;
}

// `named`: what is read elsewhere of a custom collective.
Result<model::Collective> read_collective(const Header& h, Reader& in, model::CustomCollective named) {
  const auto kind = static_cast<model::CollectiveKind>(h.kind);
  const std::uint32_t chunks = h.chunks / h.split;
  const auto make = [&]() -> Result<model::Collective> {
    if (kind != model::CollectiveKind::custom) {
      return model::Collective::builtin(kind, h.ranks, chunks, h.root, h.in_place != 0);
    }
    if (h.root != 0) return corrupt("a custom collective has no root");
    GC3_ASSIGN(model::CustomCollective data, read_custom(h, in, std::move(named)));
    return model::Collective::custom(std::move(data), h.ranks, chunks, h.in_place != 0);
  };
  Result<model::Collective> whole = make();
  if (!whole.ok()) return corrupt("its collective is invalid: " + whole.error().message);
  if (of_classes(h) ? h.split != 1 : !whole.value().can_split(h.split))
    return corrupt("its collective has too many chunks");
  if (h.split == 1) return whole;
  return whole.value().split_chunks(h.split);
}

// What is wrong with the enums and unused operands of a record, or nullptr.
const char* fault(const InstructionRecord& r) {
  if (r.opcode >= kOpcodeCount) return "unknown opcode";
  if (r.src_buffer >= model::kBufferNames.size() || r.dst_buffer >= model::kBufferNames.size()) return "unknown buffer";
  if (r.has_dependents > 1) return "a flag is neither 0 nor 1";
  const OpcodeInfo& op = kOpcodes[r.opcode];
  if (static_cast<Opcode>(r.opcode) == Opcode::apply) {
    return r.src_buffer != 0 || r.dst_buffer != 0 || r.dst_chunk != 0 ? "operands of another opcode" : nullptr;
  }
  if (!op.reads_local && (r.src_buffer != 0 || r.src_chunk != 0)) return "a source that its opcode does not use";
  if (!op.writes_local && (r.dst_buffer != 0 || r.dst_chunk != 0)) return "a destination that its opcode does not use";
  return nullptr;
}

Status read_ranks(const Header& h, Reader& in, Program& p) {
  p.ranks.reserve(described(h));
  std::uint64_t threadblocks = 0;
  std::uint64_t scratch = 0;
  for (std::uint32_t r = 0; r < described(h); ++r) {
    const auto record = in.take<RankRecord>();
    p.ranks.push_back({static_cast<std::uint32_t>(threadblocks), record.tb_count, record.scratch_chunks});
    threadblocks += record.tb_count;
    scratch += record.scratch_chunks;
    if (threadblocks > h.threadblocks) break;
  }
  if (threadblocks != h.threadblocks) return corrupt("the ranks do not cover the threadblocks");
  if (scratch > kMaxScratchChunks) return corrupt("more scratch chunks than a program may have");
  return {};
}

Status read_threadblocks(const Header& h, Reader& in, Program& p) {
  p.threadblocks.reserve(h.threadblocks);
  std::uint64_t instructions = 0;
  for (std::uint32_t t = 0; t < h.threadblocks; ++t) {
    const auto record = in.take<ThreadblockRecord>();
    p.threadblocks.push_back({record.send_peer, record.recv_peer, record.channel,
                              static_cast<std::uint32_t>(instructions), record.instruction_count});
    instructions += record.instruction_count;
    if (instructions > h.instructions) break;
  }
  if (instructions != h.instructions) return corrupt("the threadblocks do not cover the instructions");
  return {};
}

Status read_instructions(const Header& h, Reader& in, Program& p) {
  p.instructions.reserve(h.instructions);
  std::size_t applied = 0;
  std::uint64_t dependencies = 0;
  for (std::uint32_t i = 0; i < h.instructions; ++i) {
    const auto record = in.take<InstructionRecord>();
    const char* what = fault(record);
    if (static_cast<Opcode>(record.opcode) == Opcode::apply) {
      const bool known = record.src_chunk == applied && applied < p.compute.applications.size();
      if (!known || record.count != p.compute.operands_of(p.compute.applications[applied++]).size()) {
        what = "another compute operation than the table of these";
      }
    }
    if (what != nullptr) return corrupt("instruction " + std::to_string(i) + " has " + what);
    p.instructions.push_back({static_cast<Opcode>(record.opcode), static_cast<model::Buffer>(record.src_buffer),
                              static_cast<model::Buffer>(record.dst_buffer), record.has_dependents, record.src_chunk,
                              record.dst_chunk, record.count, static_cast<std::uint32_t>(dependencies),
                              record.dep_count});
    dependencies += record.dep_count;
    if (dependencies > h.dependencies) break;
  }
  if (dependencies != h.dependencies) return corrupt("the instructions do not cover the dependencies");
  if (applied != p.compute.applications.size()) return corrupt("the instructions do not cover the compute operations");
  return {};
}

// Without any group, the program is one of another version.
Status read_switched(const Header& h, Reader& in, Program& p) {
  p.switched = in.take_array<Switched>(h.instructions);
  const bool any = std::ranges::any_of(p.switched, [](const Switched& s) { return s != Switched{}; });
  if (!any) p.switched.clear();
  return any || h.version != kImageVersionWithGroups
             ? Status()
             : Status(corrupt("it has the version of programs with switch groups, and no group"));
}

// The counts of files and lines, the length of each file's name, the names, the lines, and a line per instruction.
std::uint64_t source_bytes(const Source& source) {
  std::uint64_t names = 0;
  for (const std::string& file : source.files) names += file.size();
  return 8 + 4 * std::uint64_t{source.files.size()} + names + sizeof(Source::Line) * source.lines.size() +
         4 * std::uint64_t{source.line_of.size()};
}

void write_source(const Source& source, Writer& out) {
  out.put(static_cast<std::uint32_t>(source.files.size()));
  out.put(static_cast<std::uint32_t>(source.lines.size()));
  for (const std::string& file : source.files) out.put(static_cast<std::uint32_t>(file.size()));
  for (const std::string& file : source.files) out.put_array(std::span(file));
  out.put_array(std::span(source.lines));
  out.put_array(std::span(source.line_of));
}

Status read_source(const Header& h, Reader& in, Source& source) {
  const auto wrong = [] { return corrupt("its table of source lines is malformed"); };
  if (h.source_bytes < 8 || h.instructions == 0) return wrong();
  const auto files = in.take<std::uint32_t>();
  const auto lines = in.take<std::uint32_t>();
  std::uint64_t size =
      8 + 4 * std::uint64_t{files} + sizeof(Source::Line) * std::uint64_t{lines} + 4 * std::uint64_t{h.instructions};
  if (size > h.source_bytes) return wrong();
  const auto lengths = in.take_array<std::uint32_t>(files);
  for (const std::uint32_t length : lengths) size += length;
  if (size != h.source_bytes) return wrong();
  for (const std::uint32_t length : lengths) {
    source.files.push_back(in.take_string(length));
    if (!is_utf8(source.files.back())) return corrupt("the name of a source file is not UTF-8");
  }
  source.lines = in.take_array<Source::Line>(lines);
  for (std::uint32_t k = 0; k < lines; ++k) {
    const Source::Line& line = source.lines[k];
    if (line.file >= files || (line.caller != kNone && line.caller >= k)) return wrong();
  }
  source.line_of = in.take_array<std::uint32_t>(h.instructions);
  for (const std::uint32_t line : source.line_of) {
    if (line != kNone && line >= lines) return wrong();
  }
  return {};
}

Header header_of(const Program& p) {
  const model::Collective& c = p.collective;
  Header h;
  h.name_bytes = static_cast<std::uint32_t>(p.name.size());
  h.ranks = static_cast<std::uint32_t>(p.ranks.size());
  h.threadblocks = static_cast<std::uint32_t>(p.threadblocks.size());
  h.instructions = static_cast<std::uint32_t>(p.instructions.size());
  h.dependencies = static_cast<std::uint32_t>(p.dependencies.size());
  h.instances = p.instances;
  h.slots = p.slots;
  h.chunks = c.chunks();
  h.root = c.root();
  h.split = c.split();
  h.kind = static_cast<std::uint8_t>(c.kind());
  h.protocol = static_cast<std::uint8_t>(p.protocol);
  h.in_place = c.in_place() ? 1 : 0;
  if (const model::CustomCollective* data = c.custom_data()) {
    h.custom_name_bytes = static_cast<std::uint32_t>(data->name.size());
    h.custom_begins = data->begin.size();
    h.custom_terms = data->terms.size();
  }
  return h;
}

// `tail`: the lines of the text form, for a version that has some.
std::vector<std::byte> write(const Program& program, bool with_source, std::uint32_t least_version,
                             const std::string& tail) {
  Header header = header_of(program);
  header.version = least_version;
  if (least_version == kImageVersionOfClasses) header.ranks = program.collective.ranks();
  if (with_source && program.source.known()) {
    // Too many lines for the field of the header are left out: they are not needed to run.
    const std::uint64_t bytes = source_bytes(program.source);
    if (bytes <= kMaxFileBytes) {
      header.version = std::max(header.version, kImageVersionWithSource);
      header.source_bytes = static_cast<std::uint32_t>(bytes);
    }
  }
  Writer out(*expected_bytes(header, UINT64_MAX) + tail.size());
  out.put(header);
  out.put_array(std::span(std::as_const(program.name)));
  if (const model::CustomCollective* data = program.collective.custom_data()) {
    out.put_array(std::span(data->name));
    out.put_array(std::span(data->input_chunks));
    out.put_array(std::span(data->output_chunks));
    for (const auto& a : data->alias) out.put(AliasRecord{a.value_or(0), a.has_value() ? 1U : 0U});
    out.put_array(std::span(data->begin));
    out.put_array(std::span(data->terms));
  }
  for (const RankProgram& r : program.ranks) out.put(RankRecord{r.tb_count, r.scratch_chunks});
  for (const Threadblock& t : program.threadblocks) {
    out.put(ThreadblockRecord{t.send_peer, t.recv_peer, t.channel, t.instruction_count});
  }
  for (const Instruction& i : program.instructions) {
    out.put(InstructionRecord{static_cast<std::uint8_t>(i.opcode), static_cast<std::uint8_t>(i.src_buffer),
                              static_cast<std::uint8_t>(i.dst_buffer), i.has_dependents, i.src_chunk, i.dst_chunk,
                              i.count, i.dep_count});
  }
  out.put_array(std::span(program.dependencies));
  out.put_array(std::span(program.switched));
  if (program.has_tensors() && program.switched.empty()) {
    const std::vector<Switched> none(program.instructions.size());
    out.put_array(std::span(none));
  }
  if (header.source_bytes != 0) write_source(program.source, out);
  out.put_array(std::span(tail));
  std::vector<std::byte> bytes = std::move(out.bytes());
  header.file_bytes = bytes.size();
  std::memcpy(bytes.data(), &header, sizeof(Header));
  header.checksum = checksum(Bytes(bytes).subspan(kChecksummedFrom));
  std::memcpy(bytes.data(), &header, sizeof(Header));
  return bytes;
}

}  // namespace

std::vector<std::byte> write_image(const Program& program, bool with_source) {
  if (program.has_tensors()) return write(program, with_source, kImageVersionWithCompute, compute_text(program));
  return write(program, with_source, program.switched.empty() ? kImageVersion : kImageVersionWithGroups, "");
}

std::vector<std::byte> write_image(const ClassProgram& program, bool with_source) {
  Printer symmetry;
  print_symmetry(symmetry, program);
  return write(program.representative, with_source, kImageVersionOfClasses, symmetry.str());
}

Result<ClassProgram> read_classes(std::span<const std::byte> bytes) {
  GC3_ASSIGN(const Header header, read_header(bytes));
  Reader in(bytes.subspan(sizeof(Header)));
  ClassProgram found;
  Program& p = found.representative;
  p.name = in.take_string(header.name_bytes);
  if (!is_utf8(p.name)) return corrupt("its name is not UTF-8");
  model::CustomCollective named;
  const Bytes rest = bytes.subspan(*expected_bytes(header, bytes.size()));
  const std::string_view tail = {reinterpret_cast<const char*>(rest.data()), rest.size()};
  if (header.version == kImageVersionWithCompute) {
    const Status read = parse_compute(tail, named, p.compute);
    if (!read.ok() || named.tensors.empty()) {
      return corrupt("what it computes is malformed" + (read.ok() ? "" : ": " + read.error().message));
    }
  }
  GC3_ASSIGN(p.collective, read_collective(header, in, std::move(named)));
  if (p.has_tensors() && compute_text(p) != tail) return corrupt("what it computes is not in its usual form");
  p.protocol = static_cast<model::Protocol>(header.protocol);
  p.instances = header.instances;
  p.slots = header.slots;
  GC3_CHECK(read_ranks(header, in, p));
  GC3_CHECK(read_threadblocks(header, in, p));
  GC3_CHECK(read_instructions(header, in, p));
  p.dependencies = in.take_array<Dependency>(header.dependencies);
  if (has_groups(header)) GC3_CHECK(read_switched(header, in, p));
  if (header.source_bytes != 0) GC3_CHECK(read_source(header, in, p.source));
  if (of_classes(header)) {
    if (const Status read = parse_symmetry(tail, found); !read.ok()) return corrupt(read.error().message);
  }
  return found;
}

Result<Program> read_image(std::span<const std::byte> bytes) {
  GC3_ASSIGN(ClassProgram found, read_classes(bytes));
  return of_all_ranks(std::move(found));
}

Result<Program> load(const std::string& path) {
  GC3_ASSIGN(const std::vector<std::byte> bytes, read_file(path));
  Result<Program> program = read_image(bytes);
  if (!program.ok()) program.error().message = "'" + path + "': " + program.error().message;
  return program;
}

}  // namespace gc3::ir
