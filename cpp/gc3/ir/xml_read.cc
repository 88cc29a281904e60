#include "gc3/ir/xml_read.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "gc3/base/errors/files.h"
#include "gc3/base/text.h"
#include "gc3/ir/builder.h"
#include "gc3/ir/xml_document.h"
#include "gc3/ir/xml_runtime.h"

namespace gc3::ir {
namespace {

using model::CollectiveKind;

// Converts a document into a program.
class Assembler {
 public:
  Assembler(const XmlTokens& tokens, XmlDocument doc, const XmlReadOptions& options)
      : tokens_(tokens), doc_(std::move(doc)), options_(options) {}

  Result<ProgramFile> assemble() {
    GC3_CHECK(choose_collective());
    for (const XmlGpu& gpu : doc_.gpus) {
      builder_.rank(gpu.scratch_chunks);
      number_steps(gpu);
      for (std::uint32_t t = 0; t < gpu.tb_count; ++t)
        GC3_CHECK(add_threadblock(gpu, doc_.threadblocks[gpu.first_tb + t]));
      publish();
    }
    ProgramFile file;
    file.program = std::move(builder_.program());
    file.program.name = std::move(doc_.name);
    file.program.collective = std::move(collective_);
    file.program.protocol = doc_.protocol;
    file.program.instances = doc_.instances;
    file.program.slots = doc_.slots.value_or(xml_runtime_slots(doc_.protocol));
    file.in_place = doc_.in_place;
    file.out_of_place = doc_.out_of_place;
    file.min_bytes = doc_.min_bytes;
    file.max_bytes = largest();
    return file;
  }

 private:
  Diagnostic at_algo(std::string text, ErrorId code = ErrorCode::BadXml) const {
    Diagnostic problem = tokens_.error_at(doc_.offset, std::move(text));
    problem.code = code;
    return problem;
  }

  // The largest size that the file serves. Only the dialect without outofplace means sizes below maxBytes.
  std::uint64_t largest() const {
    const bool below =
        options_.runtime == nullptr ? !doc_.states_out_of_place : options_.runtime->dialect == XmlDialect::msccl;
    if (below && options_.runtime != nullptr && !doc_.states_max_bytes) return kMscclMaxBytes - 1;
    return below && doc_.max_bytes > 1 ? doc_.max_bytes - 1 : doc_.max_bytes;
  }

  Status choose_collective() {
    const bool in_place = options_.in_place.value_or(!doc_.out_of_place);
    if (in_place ? !doc_.in_place : !doc_.out_of_place) {
      return at_algo(in_place ? "the file is for use out of place only" : "the file is for use in place only");
    }
    if (options_.collective.has_value()) {
      collective_ = options_.collective->with_in_place(in_place);
      if (collective_.ranks() != doc_.ranks) {
        return at_algo("the collective has " + std::to_string(collective_.ranks()) + " ranks, the file " +
                       std::to_string(doc_.ranks));
      }
      const std::uint32_t parts = collective_.split() == 1 ? parts_of_given() : 1;
      if (!collective_.can_split(parts)) return at_algo("the collective has too many chunks");
      collective_ = collective_.split_chunks(parts);
      return {};
    }
    const std::string& name = options_.coll.empty() ? doc_.collective : options_.coll;
    const auto kind = kind_of(name);
    if (!kind.has_value()) {
      return at_algo("coll=" + in_quotes(name) + " names no collective with a known result", ErrorCode::UnknownPurpose);
    }
    std::uint32_t chunks = doc_.chunks_per_loop;
    if (*kind == CollectiveKind::allgather || *kind == CollectiveKind::reducescatter ||
        *kind == CollectiveKind::alltoall) {
      // The whole buffer holds a block per rank.
      if (chunks % doc_.ranks != 0) {
        return at_algo("nchunksperloop " + std::to_string(chunks) + " is not a multiple of the " +
                       std::to_string(doc_.ranks) + " ranks");
      }
      chunks /= doc_.ranks;
    }
    if (chunks % doc_.split != 0) return at_algo("the chunks are not a multiple of split");
    auto made = model::Collective::builtin(*kind, doc_.ranks, chunks / doc_.split, root(*kind), in_place);
    if (!made.ok()) return at_algo("invalid collective: " + made.error().message);
    if (!made.value().can_split(doc_.split)) return at_algo("the collective has too many chunks");
    collective_ = doc_.split == 1 ? std::move(made).value() : made.value().split_chunks(doc_.split);
    return {};
  }

  // Into how many parts the file cuts every chunk of the collective that the caller describes. Other writers state only
  // the chunks of the largest buffer.
  std::uint32_t parts_of_given() const {
    if (doc_.split > 1 || collective_.custom_data() == nullptr) return doc_.split;
    std::uint32_t largest = 1;
    for (std::uint32_t r = 0; r < collective_.ranks(); ++r) {
      largest = std::max({largest, collective_.input_chunks(r), collective_.output_chunks(r)});
    }
    return doc_.chunks_per_loop > largest && doc_.chunks_per_loop % largest == 0 ? doc_.chunks_per_loop / largest : 1;
  }

  static std::optional<CollectiveKind> kind_of(std::string_view name) {
    if (name == "reduce_scatter") return CollectiveKind::reducescatter;
    const auto kind = model::parse_name<CollectiveKind>(model::kCollectiveNames, name);
    return kind == CollectiveKind::custom ? std::nullopt : kind;
  }

  // The format has no attribute for the root. It is the one rank that behaves like a root: that never receives
  // (broadcast, scatter) or never sends (reduce, gather). If that is not decisive, it is the rank that names the root's
  // side of the data, else rank 0.
  std::uint32_t root(CollectiveKind kind) const {
    if (doc_.root.has_value()) return *doc_.root;
    const bool from_root = kind == CollectiveKind::broadcast || kind == CollectiveKind::scatter;
    if (!from_root && kind != CollectiveKind::reduce && kind != CollectiveKind::gather) return 0;
    const auto only = [&](const auto& fits) {
      std::uint32_t found = kNoRank;
      for (const XmlGpu& gpu : doc_.gpus) {
        if (!fits(gpu)) continue;
        if (found != kNoRank) return kNoRank;
        found = gpu.id;
      }
      return found;
    };
    const std::uint32_t passive = only([&](const XmlGpu& gpu) {
      for (std::uint32_t t = gpu.first_tb; t < gpu.first_tb + gpu.tb_count; ++t) {
        if ((from_root ? doc_.threadblocks[t].recv_peer : doc_.threadblocks[t].send_peer) != kNoRank) return false;
      }
      return true;
    });
    if (passive != kNoRank) return passive;
    const std::uint32_t owner =
        only([&](const XmlGpu& gpu) { return (from_root ? gpu.input_chunks : gpu.output_chunks) != 0; });
    return owner != kNoRank ? owner : 0;
  }

  // The meaning of a dependency on a step of the file: published_[first_[tb] + step] is the step of the program whose
  // completion ends the wait, or kNone.

  void number_steps(const XmlGpu& gpu) {
    first_.clear();
    published_.clear();
    for (std::uint32_t t = 0; t < gpu.tb_count; ++t) {
      const XmlThreadblock& tb = doc_.threadblocks[gpu.first_tb + t];
      first_.push_back(static_cast<std::uint32_t>(published_.size()));
      std::uint32_t number = 0;
      for (std::uint32_t s = 0; s < tb.step_count; ++s) {
        const XmlStep& step = doc_.steps[tb.first_step + s];
        const bool real = step.opcode != Opcode::nop;
        published_.push_back(real && step.publishes ? number : kNone);
        if (real) ++number;
      }
      std::uint32_t next = kNone;
      for (std::size_t i = published_.size(); i > first_.back(); --i) {
        if (published_[i - 1] != kNone) next = published_[i - 1];
        published_[i - 1] = next;
      }
    }
  }

  Status add_threadblock(const XmlGpu& gpu, const XmlThreadblock& tb) {
    builder_.threadblock(tb.send_peer, tb.recv_peer, tb.channel);
    waits_of_nops_.clear();
    for (std::uint32_t s = 0; s < tb.step_count; ++s) {
      const XmlStep& step = doc_.steps[tb.first_step + s];
      deps_.clear();
      if (step.dep_tb >= 0) GC3_CHECK(add_dependency(gpu, step));
      if (step.opcode == Opcode::nop) {
        waits_of_nops_.insert(waits_of_nops_.end(), deps_.begin(), deps_.end());
        continue;
      }
      // The step's own dependency comes first: writers put the others on the nops before it.
      deps_.insert(deps_.end(), waits_of_nops_.begin(), waits_of_nops_.end());
      waits_of_nops_.clear();
      GC3_CHECK(add_step(gpu, tb, step));
    }
    return {};  // nops at the end delay no step
  }

  Status add_dependency(const XmlGpu& gpu, const XmlStep& step) {
    const auto tb = static_cast<std::uint32_t>(step.dep_tb);
    if (tb >= gpu.tb_count) {
      return at(step, "depid " + std::to_string(tb) + " of " + std::to_string(gpu.tb_count) + " threadblocks");
    }
    const std::uint32_t steps = doc_.threadblocks[gpu.first_tb + tb].step_count;
    if (step.dep_step < 0 || static_cast<std::uint32_t>(step.dep_step) >= steps) {
      return at(step, "deps " + std::to_string(step.dep_step) + " of the " + std::to_string(steps) +
                          " steps of threadblock " + std::to_string(tb));
    }
    const std::uint32_t target = published_[first_[tb] + static_cast<std::uint32_t>(step.dep_step)];
    if (target == kNone) {
      return at(step, "waits for step " + std::to_string(step.dep_step) + " of threadblock " + std::to_string(tb) +
                          ", where neither it nor a later step has hasdep=1");
    }
    deps_.push_back({tb, target});
    return {};
  }

  Status add_step(const XmlGpu& gpu, const XmlThreadblock& tb, const XmlStep& step) {
    const OpcodeInfo& op = info(step.opcode);
    if (op.sends && tb.send_peer == kNoRank)
      return at(step, in_quotes(op.xml) + " in a threadblock that sends to none");
    if (op.receives && tb.recv_peer == kNoRank) {
      return at(step, in_quotes(op.xml) + " in a threadblock that receives from none");
    }
    Instruction out;
    out.opcode = step.opcode;
    out.count = static_cast<std::uint32_t>(step.count);
    if (op.reads_local) {
      GC3_CHECK(operand(gpu, step, step.src_buffer, step.src_chunk, out.src_buffer, out.src_chunk));
    }
    if (op.writes_local) {
      GC3_CHECK(operand(gpu, step, step.dst_buffer, step.dst_chunk, out.dst_buffer, out.dst_chunk));
    }
    builder_.step(out, deps_);
    return {};
  }

  // Checks a run of chunks against the file's own sizes and the collective's; gives its canonical name.
  Status operand(const XmlGpu& gpu, const XmlStep& step, model::Buffer named, std::int32_t chunk, model::Buffer& buffer,
                 std::uint32_t& index) const {
    const std::uint32_t declared[] = {gpu.input_chunks, gpu.output_chunks, gpu.scratch_chunks};
    const std::int64_t end = std::int64_t{chunk} + step.count;
    const std::int64_t size = declared[static_cast<std::size_t>(named)];
    const auto beyond = [&](std::int64_t limit, const char* whose) {
      return at(step, "chunks " + std::to_string(chunk) + " to " + std::to_string(end - 1) + " of the " +
                          std::to_string(limit) + " chunks of " + std::string(name_of(named)) + " " + whose);
    };
    if (chunk < 0 || end > size) return beyond(size, "that the gpu declares");
    buffer = named;
    index = static_cast<std::uint32_t>(chunk);
    if (named == model::Buffer::scratch) return {};
    const bool input = named == model::Buffer::input;
    std::int64_t held = input ? collective_.input_chunks(gpu.id) : collective_.output_chunks(gpu.id);
    if (held == 0 && collective_.in_place() && collective_.kind() == CollectiveKind::broadcast) {
      // Only the root has an input, but in place all ranks pass one buffer under both names.
      buffer = model::Buffer::output;
      held = collective_.output_chunks(gpu.id);
    }
    if (end > held) return beyond(held, "that the collective has");
    const model::Place place = collective_.canonical(gpu.id, {buffer, index});
    buffer = place.buffer;
    index = place.index;
    return {};
  }

  // Marks the steps of the last rank that other steps wait for.
  void publish() {
    Program& p = builder_.program();
    const RankProgram& rank = p.ranks.back();
    for (std::uint32_t t = rank.first_tb; t < p.threadblocks.size(); ++t) {
      for (const Instruction& i : p.steps(p.threadblocks[t])) {
        for (const Dependency& d : p.deps(i)) {
          p.instructions[p.threadblocks[rank.first_tb + d.tb].first_instruction + d.step].has_dependents = 1;
        }
      }
    }
  }

  Diagnostic at(const XmlStep& step, std::string text) const { return tokens_.error_at(step.offset, std::move(text)); }

  const XmlTokens& tokens_;
  XmlDocument doc_;
  const XmlReadOptions& options_;
  model::Collective collective_;
  Builder builder_;
  std::vector<std::uint32_t> first_;
  std::vector<std::uint32_t> published_;
  std::vector<Dependency> deps_;
  std::vector<Dependency> waits_of_nops_;
};

}  // namespace

std::uint32_t xml_runtime_slots(model::Protocol protocol) {
  return model::format_of(protocol) == model::Protocol::Simple ? 2 : 8;
}

Result<ProgramFile> read_xml(std::string_view text, const std::string& origin, const XmlReadOptions& options) {
  XmlTokens tokens(text, origin, options.runtime != nullptr);
  GC3_ASSIGN(XmlDocument doc, parse_xml_document(tokens));
  if (options.runtime != nullptr) {
    GC3_CHECK(check_loadable(doc, tokens, *options.runtime));
    GC3_CHECK(rewrite_as_executed(doc, tokens, *options.runtime));
  }
  return Assembler(tokens, std::move(doc), options).assemble();
}

}  // namespace gc3::ir
