// How a program is put on a stream: with the call's buffers, or with copies where the program works in place and the
// call does not, or the other way round.
#include <algorithm>
#include <optional>

#include "gc3/nccl/communicator.h"
#include "gc3/runtime/interp/divisors.h"

namespace gc3::nccl {
namespace {

bool overlap(const std::uint8_t* a, std::uint64_t a_bytes, const std::uint8_t* b, std::uint64_t b_bytes) {
  return a != nullptr && b != nullptr && a < b + b_bytes && b < a + a_bytes;
}

}  // namespace

// The buffers of a launch, and the copies before and after it.
struct Communicator::Fitted {
  struct Copy {
    std::uint8_t* to = nullptr;
    const std::uint8_t* from = nullptr;
    std::uint64_t bytes = 0;
  };
  const std::uint8_t* input = nullptr;
  std::uint8_t* output = nullptr;
  Copy before;
  Copy after;
  std::uint64_t count = 0;
  model::DataType type = model::DataType::float32;
  model::ReduceOp op = model::ReduceOp::sum;
  model::Factor factor = {};
};

Result<std::uint8_t*> Communicator::workspace(std::uint64_t bytes) {
  if (workspaces_.empty() || workspaces_.back().size() < bytes) {
    // At least twice as large as the one before, so all earlier ones together are smaller than the last.
    if (!workspaces_.empty()) bytes = std::max<std::uint64_t>(bytes, 2 * workspaces_.back().size());
    GC3_ASSIGN(cuda::Memory memory, cuda::Memory::on(member_->device, bytes, "a copy of a buffer"));
    workspaces_.push_back(std::move(memory));
  }
  return workspaces_.back().data();
}

Result<Communicator::Fitted> Communicator::fit(const Call& call, const Prepared& program) {
  const model::Collective& does = program.engine->plan().collective;
  const std::uint32_t rank = member_->rank;
  Fitted fitted;
  fitted.count = call.count;
  fitted.type = type_of(call).value();
  fitted.op = op_of(call).value_or(model::ReduceOp::sum);
  // NCCL averages by a premulsum. A custom collective may add another number of inputs into each chunk.
  using Kind = model::CollectiveKind;
  const bool reduces =
      does.kind() == Kind::allreduce || does.kind() == Kind::reduce || does.kind() == Kind::reducescatter;
  const auto factor = interp::average_factor(fitted.type, does.ranks());
  if (fitted.op == model::ReduceOp::avg && reduces && factor) {
    fitted.op = model::ReduceOp::premulsum;
    fitted.factor = *factor;
  }
  const std::uint64_t block = call.count * model::size_of(fitted.type);
  const std::uint64_t in_bytes = block * does.input_blocks(rank);
  const std::uint64_t out_bytes = block * does.output_blocks(rank);
  // NCCL ignores the buffer that a rank does not have, such as the output of a reduction on ranks other than the root.
  const auto* const input = in_bytes == 0 ? nullptr : static_cast<const std::uint8_t*>(call.send);
  auto* const output = out_bytes == 0 ? nullptr : static_cast<std::uint8_t*>(call.recv);
  fitted.input = input;
  fitted.output = output;
  const bool shared = overlap(input, in_bytes, output, out_bytes);
  if (!does.in_place()) {
    if (!shared) return fitted;
    GC3_ASSIGN(std::uint8_t* const apart, workspace(std::min(in_bytes, out_bytes)));
    if (in_bytes <= out_bytes) {
      fitted.before = {apart, input, in_bytes};
      fitted.input = apart;
    } else {
      fitted.after = {output, apart, out_bytes};
      fitted.output = apart;
    }
    return fitted;
  }
  const auto alias = does.alias(rank);
  if (!alias || input == nullptr || output == nullptr) return fitted;
  const std::uint64_t offset = alias->offset / does.chunks() * block;
  if (alias->inner == model::Buffer::input) {
    if (input != output + offset) fitted.before = {output + offset, input, in_bytes};
    fitted.input = output + offset;
  } else if (output != input + offset) {
    GC3_ASSIGN(std::uint8_t* const apart, workspace(in_bytes));
    fitted.before = {apart, input, in_bytes};
    fitted.after = {output, apart + offset, out_bytes};
    fitted.input = apart;
    fitted.output = apart + offset;
  }
  return fitted;
}

Result<std::optional<unsigned long long>> Communicator::number_of(Stream stream) const {
  GC3_ASSIGN(const bool captured, capturing(stream));
  if (captured) return std::optional<unsigned long long>();
  const cuda::Current current(*member_->device);
  const cuda::Driver& driver = member_->device->driver();
  unsigned long long number = 0;
  GC3_CHECK(driver.check(driver->stream_id(stream, &number), "the stream"));
  return std::optional(number);
}

Status Communicator::follow(Stream stream) {
  if (!last_stream_) return {};
  GC3_ASSIGN(const auto number, number_of(stream));
  if (!number || number == last_stream_) return {};
  const cuda::Current current(*member_->device);
  const cuda::Driver& driver = member_->device->driver();
  return driver.check(driver->wait_event(stream, done_.get(), 0), "the order of two streams");
}

Status Communicator::reserve(const Call& call, Prepared& program) {
  const auto work = [&]() -> Status {
    GC3_ASSIGN(const Fitted fitted, fit(call, program));
    return program.engine->reserve(fitted.input, fitted.output, fitted.count, fitted.type, fitted.op);
  };
  return fail(work());
}

Status Communicator::launch(const Call& call, Prepared& program) {
  const auto work = [&]() -> Status {
    GC3_ASSIGN(const Fitted fitted, fit(call, program));
    const cuda::Driver& driver = member_->device->driver();
    const auto copy = [&](const Fitted::Copy& what) -> Status {
      if (what.bytes == 0) return {};
      const cuda::Current current(*member_->device);
      return driver.check(
          driver->device_to_device(cuda::address(what.to), cuda::address(what.from), what.bytes, call.stream),
          "a copy of a buffer on " + member_->device->describe());
    };
    GC3_CHECK(follow(call.stream));
    GC3_CHECK(copy(fitted.before));
    GC3_CHECK(program.engine->enqueue(fitted.input, fitted.output, fitted.count, fitted.type, fitted.op, fitted.factor,
                                      call.stream));
    GC3_CHECK(copy(fitted.after));
    GC3_ASSIGN(const auto number, number_of(call.stream));
    if (!number) return {};  // the user orders graphs
    if (done_.get() == nullptr) {
      GC3_ASSIGN(done_, cuda::Event::create(member_->device, false));
    }
    const cuda::Current current(*member_->device);
    GC3_CHECK(driver.check(driver->record_event(done_.get(), call.stream), "the end of a launch"));
    last_stream_ = number;
    return {};
  };
  return fail(work());
}

}  // namespace gc3::nccl
