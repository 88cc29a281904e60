// Programs that compute, with the caller's functions. Python's are in python/gc3/runtime/with_functions.py.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/base/guarded.h"
#include "gc3/comm/communicator.h"
#include "gc3/gc3.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/forms.h"
#include "gc3/ir/program.h"
#include "gc3/model/collective.h"
#include "gc3/runtime/cpu/computing.h"
#include "gc3/verify/classes.h"

namespace gc3 {

struct Bound::Body {
  std::weak_ptr<comm::Communicator> comm;
  ir::ClassProgram program;
  std::vector<Operation> functions;              // by the numbers of the operations
  std::map<std::string, std::uint32_t> numbers;  // of lengths, also by the tensors that have them
  std::vector<bool> used;                        // the lengths that this program cannot do without
  std::mutex mutex = {};
  std::map<std::uint64_t, comm::Ready> prepared = {};  // by the bytes of a slot

  const ir::Program& steps() const { return program.representative; }
  const model::CustomCollective& data() const { return *steps().collective.custom_data(); }

  void find_lengths() {
    const ir::Compute& compute = steps().compute;
    used.resize(compute.lengths.size());
    for (std::uint32_t k = 0; k < compute.lengths.size(); ++k) numbers[compute.lengths[k]] = k;
    for (const model::Tensor& t : data().tensors) {
      numbers[t.name] = t.length;
      used[t.length] = true;
    }
    for (const ir::Application& a : compute.applications) {
      for (const ir::Operand& made : compute.writes(a)) used[made.length] = true;
    }
  }

  // The elements of a chunk of each length.
  Result<std::vector<std::uint64_t>> lengths(const std::map<std::string, std::size_t>& counts) const {
    const std::vector<std::string>& names = steps().compute.lengths;
    std::vector<std::optional<std::uint64_t>> found(names.size());
    for (const auto& [name, count] : counts) {
      const auto number = numbers.find(name);
      if (number == numbers.end()) return Diagnostic(ErrorCode::BadBuffer, "counts: there is no '" + name + "'");
      if (std::uint64_t{count} >> 48U != 0) {
        return Diagnostic(ErrorCode::BadBuffer, std::to_string(count) + " elements are more than any memory holds");
      }
      std::optional<std::uint64_t>& known = found[number->second];
      if (known && *known != count) {
        return Diagnostic(ErrorCode::BadBuffer, "a chunk of '" + name + "' has " + std::to_string(count) +
                                                    " elements, and one that the program moves from or to it " +
                                                    std::to_string(*known));
      }
      known = count;
    }
    std::vector<std::uint64_t> all(names.size());
    for (std::uint32_t k = 0; k < names.size(); ++k) {
      if (used[k] && !found[k]) return Diagnostic(ErrorCode::BadBuffer, "counts: '" + names[k] + "' is missing");
      all[k] = found[k].value_or(0);
    }
    return all;
  }

  // The chunks of this rank's tensors, one after the other.
  Result<std::vector<std::uint8_t*>> chunks(model::Buffer buffer, const std::map<std::string, void*>& tensors,
                                            std::uint32_t rank, const std::vector<std::uint64_t>& counts,
                                            std::size_t elem) const {
    std::vector<std::uint8_t*> found;
    for (const model::Tensor& t : data().tensors) {
      if (t.buffer != buffer) continue;
      const auto given = tensors.find(t.name);
      auto* const first = given == tensors.end() ? nullptr : static_cast<std::uint8_t*>(given->second);
      const std::uint64_t bytes = counts[t.length] * elem;
      if (first == nullptr && t.chunks[rank] * bytes != 0) {
        return Diagnostic(ErrorCode::BadBuffer, "rank " + std::to_string(rank) + " has no '" + t.name + "'");
      }
      for (std::uint32_t k = 0; k < t.chunks[rank]; ++k) found.push_back(first + k * bytes);
    }
    return found;
  }

  // Whether `tensors` are this program's, and outputs memory of their own.
  Status check(const std::map<std::string, void*>& tensors, std::uint32_t rank,
               const std::vector<std::uint64_t>& counts, std::size_t elem) const {
    struct Held {
      const model::Tensor* tensor;
      std::uintptr_t first;
      std::uintptr_t last;
    };
    std::vector<Held> all;
    for (const auto& [name, first] : tensors) {
      const auto found = std::ranges::find(data().tensors, name, &model::Tensor::name);
      if (found == data().tensors.end()) {
        return Diagnostic(ErrorCode::BadBuffer, "'" + name + "' is no tensor of the program");
      }
      const auto at = reinterpret_cast<std::uintptr_t>(first);
      const Held held{&*found, at, at + found->chunks[rank] * counts[found->length] * elem};
      for (const Held& other : all) {
        const bool written =
            held.tensor->buffer == model::Buffer::output || other.tensor->buffer == model::Buffer::output;
        if (!written || held.first >= other.last || other.first >= held.last) continue;
        return Diagnostic(ErrorCode::BadBuffer, "'" + other.tensor->name + "' and '" + name +
                                                    "' overlap, and an output needs memory of its own");
      }
      all.push_back(held);
    }
    return {};
  }

  // Slots as long as the longest message that may be: all ranks know the same lengths. Powers of two, because the
  // memory of each length stays as long as the communicator.
  Result<comm::Ready> ready(comm::Communicator& on, const std::vector<std::uint64_t>& counts, std::size_t elem) {
    constexpr std::uint64_t kLine = 128;
    const std::uint64_t longest = counts.empty() ? 0 : *std::ranges::max_element(counts);
    const std::uint64_t slot = std::bit_ceil(longest * elem * steps().max_count() + kLine);
    const std::lock_guard lock(mutex);
    if (const auto found = prepared.find(slot); found != prepared.end()) return found->second;
    GC3_ASSIGN(comm::Ready made, on.prepare(program, 0, slot, {}));
    return prepared[slot] = std::move(made);
  }

  Status call(const cpu::Computation& computation, std::size_t elem) const {
    const ir::Application& a = steps().compute.applications[computation.application];
    std::vector<Chunk> operands;
    std::vector<Chunk> results;
    for (std::uint32_t k = 0; k < computation.operands.size(); ++k) {
      const interp::Extent& at = computation.operands[k];
      auto* const data = k < a.reads ? const_cast<std::uint8_t*>(at.src) : at.dst;
      (k < a.reads ? operands : results).push_back({data, static_cast<std::size_t>(at.bytes / elem)});
    }
    const Status status = guarded([&] { return functions[a.operation](operands, results); });
    if (status.ok()) return {};
    return Diagnostic(ErrorCode::ComputeFailed, data().operations[a.operation] + " of rank " +
                                                    std::to_string(computation.rank) + ": " + status.error().message);
  }
};

Bound::Bound(std::shared_ptr<Body> body) : body_(std::move(body)) {}

Result<Bound> Bound::made(const std::shared_ptr<comm::Communicator>& comm, const std::string& path,
                          std::map<std::string, Operation> functions) {
  GC3_ASSIGN(ir::ProgramFile file, ir::load_any(path, {.keep_classes = true}));
  auto body = std::make_shared<Bound::Body>();
  body->comm = comm;
  body->program = file.taken();
  const model::Collective& collective = body->steps().collective;
  if (!collective.has_tensors())
    return Diagnostic(ErrorCode::BadArgument, path + " has no compute operations: load it");
  if (collective.ranks() != comm->size()) {
    return Diagnostic(ErrorCode::BadArgument, "the program is for " + std::to_string(collective.ranks()) +
                                                  " ranks, the communicator has " + std::to_string(comm->size()));
  }
  const verify::Report report = verify::verify(body->program);
  if (!report.ok()) return report.diagnostics.front();
  body->find_lengths();
  for (const std::string& name : body->data().operations) {
    const auto found = functions.find(name);
    if (found == functions.end() || !found->second) {
      return Diagnostic(ErrorCode::BadArgument, "'" + name + "' has no function");
    }
    body->functions.push_back(std::move(found->second));
    functions.erase(found);
  }
  if (!functions.empty()) {
    return Diagnostic(ErrorCode::BadArgument, "'" + functions.begin()->first + "' is no operation of the program");
  }
  return Bound(std::move(body));
}

Status Bound::run(const std::map<std::string, void*>& tensors, const std::map<std::string, std::size_t>& counts,
                  DataType type, ReduceOp op, std::optional<double> timeout_s) {
  const std::shared_ptr<comm::Communicator> comm = body_->comm.lock();
  if (comm == nullptr) return Diagnostic(ErrorCode::CommunicatorClosed, "");
  const std::size_t elem = model::size_of(type);
  const auto made = [&]() -> Status {
    GC3_ASSIGN(const std::vector<std::uint64_t> lengths, body_->lengths(counts));
    GC3_CHECK(body_->check(tensors, comm->rank(), lengths, elem));
    GC3_ASSIGN(const auto inputs, body_->chunks(model::Buffer::input, tensors, comm->rank(), lengths, elem));
    GC3_ASSIGN(const auto outputs, body_->chunks(model::Buffer::output, tensors, comm->rank(), lengths, elem));
    GC3_ASSIGN(const comm::Ready program, body_->ready(*comm, lengths, elem));
    const cpu::VRankCall call{lengths, inputs, outputs, type, op, {}, timeout_s};
    return comm->compute(*program, call, [&](const cpu::Computation& c) { return body_->call(c, elem); });
  };
  const Status status = made();
  if (!status.ok()) comm->refuse(status.error());  // the others, who wait
  return status;
}

}  // namespace gc3
