// docs/architecture.md ("One rank for all") says why the proof on rank 0 is one for all ranks; each function here is a
// part of that argument.
#include "gc3/verify/classes.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/verifier.h"
#include "gc3/verify/execution.h"
#include "gc3/verify/limits.h"
#include "gc3/verify/program.h"
#include "gc3/verify/races.h"
#include "gc3/verify/schedule.h"

namespace gc3::verify {
namespace {

constexpr std::uint64_t kWholeSteps = std::uint64_t{1} << 20U;  // of a program that is proven as a whole if need be
constexpr std::size_t kMostBoxes = 64;                          // of one value

// The axes of which a step has all digits, and by which translations turn its chunks; of any of its operands.
model::Axes turning(const ir::ClassProgram& program, model::Buffer buffer, std::uint32_t chunk, std::uint32_t count) {
  const ir::Region& in = program.region(buffer, chunk);
  model::Axes out;
  for (const model::Axis& axis : in.axes) {
    if (program.symmetry.covers(axis, chunk - in.begin, count)) out.push_back(axis);
  }
  return out;
}
model::Axes turning(const ir::ClassProgram& program, const ir::Instruction& i) {
  return ir::info(i.opcode).reads_local ? turning(program, i.src_buffer, i.src_chunk, i.count)
                                        : turning(program, i.dst_buffer, i.dst_chunk, i.count);
}

// Values are lists of boxes, each an input index and for each coordinate where its range begins and how long it is.
class Boxes {
 public:
  using Value = std::vector<std::uint32_t>;

  Boxes(const ir::ClassProgram& program, const ProgramIndex& index, Findings& findings)
      : program_(program), index_(index), findings_(findings), width_(1 + 2 * program.symmetry.shape().size()) {}

  Value input(std::uint32_t rank, std::uint32_t index) const {
    Value out{index};
    for (std::uint32_t k = 0; k < program_.symmetry.shape().size(); ++k) {
      out.insert(out.end(), {program_.symmetry.coordinate(rank, k), 1});
    }
    return out;
  }
  // Of one chunk index of every rank.
  Value of_all(std::uint32_t index) const {
    Value out{index};
    for (const std::uint32_t values : program_.symmetry.shape()) out.insert(out.end(), {0, values});
    return out;
  }

  Value sum(const Value& a, const Value& b) {
    Value out = a;
    for (std::size_t k = 0; k < b.size(); k += width_) {
      Value box(b.begin() + static_cast<std::ptrdiff_t>(k), b.begin() + static_cast<std::ptrdiff_t>(k + width_));
      for (std::size_t at = 0; at < out.size();) {
        if (!join(box, &out[at])) {
          at += width_;
          continue;
        }
        const auto first = out.begin() + static_cast<std::ptrdiff_t>(at);
        out.erase(first, first + static_cast<std::ptrdiff_t>(width_));
        at = 0;  // the longer box may touch one that was passed
      }
      out.insert(out.end(), box.begin(), box.end());
    }
    if (out.size() > kMostBoxes * width_) irregular_ = true, out.resize(width_);
    return out;
  }

  std::uint32_t sent_place(Step step, std::uint32_t k) const {
    const std::uint32_t sender = index_.program().threadblocks[step.tb].recv_peer;
    const model::Axes axes = turning(program_, index_.instruction(step));
    return axes.empty() ? k : program_.symmetry.moved(axes, k, 1, program_.symmetry.minus(0, sender));
  }
  Value sent_value(Step step, Value value) const {
    const std::uint32_t sender = index_.program().threadblocks[step.tb].recv_peer;
    const auto& shape = program_.symmetry.shape();
    for (std::size_t at = 0; at < value.size(); at += width_) {
      value[at] = program_.moved(model::Buffer::input, value[at], 1, sender);
      for (std::uint32_t k = 0; k < shape.size(); ++k) {
        std::uint32_t& begin = value[at + 1 + 2 * k];
        if (value[at + 2 + 2 * k] != shape[k]) begin = (begin + program_.symmetry.coordinate(sender, k)) % shape[k];
      }
    }
    return value;
  }

  void unwritten(Step reader, model::Place place) {
    findings_.add({ErrorCode::UninitializedRead,
                   index_.describe(reader) + " reads " + place_name(place) + ", which nothing has written"});
  }
  bool irregular() const { return irregular_; }

 private:
  // Makes `box` the union of both boxes if that is a box, too: they differ on one coordinate, and touch there.
  bool join(Value& box, const std::uint32_t* other) const {
    if (box[0] != other[0]) return false;
    const auto& shape = program_.symmetry.shape();
    std::size_t differs = 0;
    for (std::uint32_t k = 0; k < shape.size(); ++k) {
      if (box[1 + 2 * k] == other[1 + 2 * k] && box[2 + 2 * k] == other[2 + 2 * k]) continue;
      if (differs != 0) return false;
      differs = 1 + k;
    }
    if (differs == 0) return false;  // twice the same
    const std::uint32_t values = shape[differs - 1];
    std::uint32_t& begin = box[2 * differs - 1];
    std::uint32_t& length = box[2 * differs];
    const std::uint32_t other_begin = other[2 * differs - 1];
    const std::uint32_t other_length = other[2 * differs];
    if (length + other_length > values) return false;
    if ((other_begin + other_length) % values == begin) {
      begin = other_begin;
    } else if ((begin + length) % values != other_begin) {
      return false;
    }
    length += other_length;
    if (length == values) begin = 0;
    return true;
  }

  const ir::ClassProgram& program_;
  const ProgramIndex& index_;
  Findings& findings_;
  std::size_t width_;
  bool irregular_ = false;
};

bool check_operands(const ir::ClassProgram& program, const ProgramIndex& index, Findings& findings) {
  const ir::Program& one = program.representative;
  for (std::uint32_t t = 0; t < one.threadblocks.size(); ++t) {
    for (std::uint32_t s = 0; s < one.threadblocks[t].instruction_count && !findings.full(); ++s) {
      const ir::Instruction& i = index.instruction({t, s});
      const ir::OpcodeInfo& op = ir::info(i.opcode);
      const auto keeps = [&](model::Buffer buffer, std::uint32_t chunk) {
        const ir::Region& in = program.region(buffer, chunk);
        return &in == &program.region(buffer, chunk + i.count - 1) &&
               program.symmetry.keeps(in.axes, chunk - in.begin, i.count);
      };
      if (!op.moves()) continue;
      if ((op.reads_local && !keeps(i.src_buffer, i.src_chunk)) ||
          (op.writes_local && !keeps(i.dst_buffer, i.dst_chunk))) {
        findings.add(
            {ErrorCode::BadStructure, index.describe({t, s}) + " names chunks that are not side by side on all ranks"});
      } else if (op.reads_local && op.writes_local &&
                 turning(program, i.src_buffer, i.src_chunk, i.count) !=
                     turning(program, i.dst_buffer, i.dst_chunk, i.count)) {
        findings.add({ErrorCode::UnmatchedTransfer,
                      index.describe({t, s}) + " moves chunks between places that translations turn differently"});
      }
    }
  }
  return findings.empty();
}

// Whether the chunks of each message turn alike at both ends.
bool check_messages(const ir::ClassProgram& program, const ProgramIndex& index, const Connections& connections,
                    Findings& findings) {
  for (const Connection& c : connections.all) {
    Step send{c.send_tb, 0};
    Step recv{c.recv_tb, 0};
    for (std::uint32_t m = 0; m < c.messages; ++m, ++send.step, ++recv.step) {
      while (!ir::info(index.instruction(send).opcode).sends) ++send.step;
      while (!ir::info(index.instruction(recv).opcode).receives) ++recv.step;
      if (turning(program, index.instruction(send)) == turning(program, index.instruction(recv))) continue;
      findings.add({ErrorCode::UnmatchedTransfer, index.describe(send) + " sends what " + index.describe(recv) +
                                                      " receives at places that translations turn differently"});
      return false;
    }
  }
  return true;
}

void check_outputs(const ir::ClassProgram& program, Boxes& boxes, Execution<Boxes>& execution, Findings& findings) {
  const model::Collective& c = program.representative.collective;
  for (std::uint32_t i = 0; i < c.output_chunks(0) && !findings.full(); ++i) {
    const model::Demand demanded = c.demand(0, i);
    const Cell<Boxes::Value>& held = execution.output(0, i);
    if (demanded.size() == 0 || held.state == State::spoiled) continue;
    const Boxes::Value wanted = demanded.size() == c.ranks() ? boxes.of_all(demanded.first.index)
                                                             : boxes.input(demanded.first.rank, demanded.first.index);
    if (held.state == State::written && held.value == wanted) continue;
    findings.add({ErrorCode::WrongResult,
                  "rank 0 output[" + std::to_string(i) + "] holds " + model::terms_text(held.terms) +
                      " instead of the " + model::terms_text(demanded.size()) + " that it must, or an irregular sum"});
  }
}

}  // namespace

Report verify_representative(const ir::ClassProgram& program, const Options& options) {
  const ir::Program& one = program.representative;
  Report report;
  report.slots = options.slots != 0 ? options.slots : one.slots;
  Findings findings(options.max_diagnostics);
  const auto prove = [&] {
    if (!ir::check_structure(program, options.slots, findings) || findings.full()) return;
    if (!check_limits(one, options, findings) || !findings.empty()) return;
    const ProgramIndex index(one);
    if (!check_operands(program, index, findings)) return;
    const Connections connections = ir::match_transfers(program, index, findings);
    report.transfers = connections.messages * program.ranks();
    if (!findings.empty() || !check_messages(program, index, connections, findings)) return;
    const Schedule schedule = find_schedule(index, connections, report.slots, findings);
    if (!findings.empty()) return;
    if (!ordered_within_ranks(index, schedule, findings)) return;
    Boxes boxes(program, index, findings);
    Execution<Boxes> execution(index, connections, boxes);
    execution.run(schedule);
    if (boxes.irregular())
      findings.add({ErrorCode::WrongResult, "a sum of too irregular a set of ranks to be followed"});
    check_outputs(program, boxes, execution, findings);
  };
  prove();
  report.diagnostics = findings.take();
  return report;
}

Report verify(const ir::ClassProgram& program, const Options& options) {
  if (!program.symmetry.exists()) return verify(program.representative, options);
  Report report = verify_representative(program, options);
  const bool expands = !report.diagnostics.empty() && report.diagnostics.front().code != ErrorCode::BadStructure;
  if (!expands && !options.chunk_per_slot) return report;
  Result<ir::Program> whole = ir::expand(program, kWholeSteps);
  if (whole.ok()) return verify(whole.value(), options);
  if (options.chunk_per_slot) report.diagnostics.push_back(std::move(whole.error()));
  return report;
}

}  // namespace gc3::verify
