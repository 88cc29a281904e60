#include "gc3/ir/index.h"

#include "gc3/base/errors/common.h"
#include "gc3/base/text.h"
#include "gc3/ir/text.h"

namespace gc3::ir {

using model::Buffer;

std::array<std::uint64_t, 3> buffer_sizes(const Program& program, std::uint32_t rank) {
  const model::Collective& c = program.collective;
  const auto size = [&](Buffer b, std::uint32_t chunks) -> std::uint64_t {
    return c.canonical(rank, {b, 0}).buffer == b ? chunks : 0;
  };
  return {size(Buffer::input, c.input_chunks(rank)), size(Buffer::output, c.output_chunks(rank)),
          program.ranks[rank].scratch_chunks};
}

ProgramIndex::ProgramIndex(const Program& program) : program_(program) {
  rank_of_.resize(program.threadblocks.size());
  slots_.resize(program.ranks.size());
  for (std::uint32_t r = 0; r < program.ranks.size(); ++r) {
    const RankProgram& rank = program.ranks[r];
    for (std::uint32_t t = 0; t < rank.tb_count; ++t) rank_of_[rank.first_tb + t] = r;
    RankSlots& row = slots_[r];
    row.first = slot_count_;
    const auto sizes = buffer_sizes(program, r);
    for (std::size_t b = 0; b < 3; ++b) row.begin[b + 1] = row.begin[b] + static_cast<std::uint32_t>(sizes[b]);
    slot_count_ += row.begin[3];
  }
}

model::Place ProgramIndex::place(std::uint32_t rank, std::uint32_t slot) const {
  const auto& begin = slots_[rank].begin;
  const std::size_t b = slot >= begin[2] ? 2 : slot >= begin[1] ? 1 : 0;
  return {static_cast<Buffer>(b), slot - begin[b]};
}

std::string plural(std::uint64_t n, const std::string& noun) {
  return std::to_string(n) + " " + noun + (n == 1 ? "" : "s");
}

std::string step_name(std::uint32_t rank, std::uint32_t tb, std::uint32_t step) {
  return "rank " + std::to_string(rank) + " threadblock " + std::to_string(tb) + " step " + std::to_string(step);
}

std::string place_name(model::Place place) {
  return std::string(model::name_of(place.buffer)) + "[" + std::to_string(place.index) + "]";
}

Status check_plain(const Program& program, std::string_view what) {
  if (!program.has_tensors()) return {};
  std::string why(what);
  why += " moves chunks of one length, and " + shown(program.name) + " has named tensors";
  if (!program.compute.applications.empty()) why += " and applies operations to them";
  return Diagnostic(ErrorCode::NotWithCompute, why);
}

std::string in_brackets(std::string_view what, const Source& source, std::uint32_t instruction) {
  std::string out(" (");
  out += what;
  if (source.known() && source.line_of[instruction] != kNone) {
    const Source::Line& line = source.lines[source.line_of[instruction]];
    const std::string& file = source.files[line.file];
    out += ", " + shown(file.substr(file.rfind('/') + 1)) + ":" + std::to_string(line.line);
  }
  out += ')';
  return out;
}

std::string ProgramIndex::describe(Step s) const {
  return step_name(rank_of(s.tb), local_tb(s.tb), s.step) +
         in_brackets(to_text(program_, instruction(s)), program_.source,
                     program_.threadblocks[s.tb].first_instruction + s.step);
}

}  // namespace gc3::ir
