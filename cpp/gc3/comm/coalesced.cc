// Several calls at once, calls of buffers in lists, and calls that are started.
#include <algorithm>
#include <array>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/verifier.h"
#include "gc3/base/guarded.h"
#include "gc3/comm/communicator.h"

namespace gc3::comm {
namespace {

using model::Buffer;
using model::Collective;

constexpr auto kLook = std::chrono::milliseconds(20);  // between checks for signals, while another thread runs the call

// The calls that are one run: alike, with the arrays of each.
struct Alike {
  Collective collective;
  bool in_place = false;
  std::optional<Collective::Alias> alias = {};
  std::vector<const Call*> calls = {};
};

// Memory that a call uses.
struct Used {
  const std::uint8_t* begin;
  const std::uint8_t* end;
  bool written;
  std::size_t call;
};

std::uint32_t blocks_of(const Collective& collective, std::uint32_t rank, Buffer buffer) {
  return buffer == Buffer::input ? collective.input_blocks(rank) : collective.output_blocks(rank);
}

std::uint8_t* block_at(const Call& call, Buffer buffer, std::uint32_t block) {
  const bool is_input = buffer == Buffer::input;
  const std::vector<std::uint8_t*>& each = is_input ? call.input_at : call.output_at;
  if (!each.empty()) return each[block];
  auto* const first = static_cast<std::uint8_t*>(is_input ? const_cast<void*>(call.input) : call.output);
  return first == nullptr ? nullptr : first + block * call.count * model::size_of(call.type);
}

// The blocks of these calls, each of which is as long as all of theirs together.
VCall joined(const Collective& collective, std::uint32_t rank, const std::vector<const Call*>& calls) {
  const Call& first = *calls.front();
  VCall made;
  made.kind = first.kind;
  made.type = first.type;
  made.op = first.op;
  made.root = first.root;
  std::uint64_t all = 0;
  for (const Call* call : calls) {
    made.arrays.push_back(call->count);
    all += call->count;
    if (call->timeout_s) made.timeout_s = std::min(*call->timeout_s, made.timeout_s.value_or(*call->timeout_s));
  }
  made.counts.assign(collective.counts(), all);
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    std::vector<std::uint8_t*>& at = buffer == Buffer::input ? made.input : made.output;
    for (std::uint32_t b = 0; b < blocks_of(collective, rank, buffer); ++b) {
      for (const Call* call : calls) at.push_back(block_at(*call, buffer, b));
    }
  }
  return made;
}

// In place, the larger of the two buffers has the other in it.
void note_used(std::vector<Used>& used, const Alike& alike, std::uint32_t rank, const Call& call, std::size_t number) {
  const std::uint64_t bytes = call.count * model::size_of(call.type);
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    if (alike.alias && alike.alias->inner == buffer) continue;
    const bool written = buffer == Buffer::output || alike.alias;
    for (std::uint32_t b = 0; b < blocks_of(alike.collective, rank, buffer) && bytes != 0; ++b) {
      const std::uint8_t* const at = block_at(call, buffer, b);
      const bool shared = !written && b < blocks_of(alike.collective, rank, Buffer::output);
      if (shared && at == block_at(call, Buffer::output, b)) continue;
      used.push_back({at, at + bytes, written, number});
    }
  }
}

// The calls run in no particular order.
Status check_apart(std::vector<Used>& used) {
  const std::less<> before;  // of pointers into different buffers, too
  std::ranges::sort(used, [&](const Used& a, const Used& b) { return before(a.begin, b.begin); });
  std::optional<Used> any;
  std::optional<Used> written;
  for (const Used& next : used) {
    const std::optional<Used>& other = next.written ? any : written;
    if (other && other->call != next.call && before(next.begin, other->end)) {
      const auto [first, second] = std::minmax(next.call, other->call);
      return Diagnostic(ErrorCode::BadBuffer, "call " + std::to_string(first) + " and call " + std::to_string(second) +
                                                  " of those made at once use the same memory, and one writes it");
    }
    if (!any || before(any->end, next.end)) any = next;
    if (next.written && (!written || before(written->end, next.end))) written = next;
  }
  return {};
}

}  // namespace

Result<Communicator::Planned> Communicator::planned(const Call& call) {
  GC3_ASSIGN(const select::CallShape key, shape(call));
  GC3_ASSIGN(const Found found, find(key, false));
  return Planned{found, call.buffers()};
}

Result<std::vector<Communicator::Planned>> Communicator::planned(std::span<const Call> calls) {
  std::vector<Alike> groups;
  std::vector<Used> used;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const Call& call = calls[i];
    bool is_in_place = false;
    if (call.has_lists()) {
      GC3_ASSIGN(const Collective collective, v_collective(call.kind, call.root));
      for (const Buffer buffer : {Buffer::input, Buffer::output}) {
        const std::size_t given = (buffer == Buffer::input ? call.input_at : call.output_at).size();
        const std::uint32_t wanted = blocks_of(collective, rank(), buffer);
        if (given == 0 || given == wanted) continue;
        return Diagnostic(ErrorCode::BadBuffer,
                          std::to_string(given) + " arrays for the " + std::string(name_of(buffer)) + " of rank " +
                              std::to_string(rank()) + ", which has " + std::to_string(wanted) + " blocks");
      }
      VCall alone = joined(collective, rank(), {&call});
      alone.arrays.clear();
      GC3_CHECK(check_counts(collective, call.type, alone.counts));
      GC3_ASSIGN(is_in_place, in_place(collective, rank(), alone));
    } else {
      GC3_ASSIGN(const select::CallShape key, shape(call));
      is_in_place = key.in_place;
    }
    auto found = std::ranges::find_if(groups, [&](const Alike& group) {
      const Call& other = *group.calls.front();
      return call.kind == other.kind && call.type == other.type && call.op == other.op && call.root == other.root &&
             is_in_place == group.in_place && call.op != model::ReduceOp::premulsum;  // the factors differ
    });
    if (found == groups.end()) {
      GC3_ASSIGN(const Collective collective, Collective::builtin(call.kind, size(), 1, call.root, false));
      found = groups.insert(groups.end(), {collective, is_in_place});
      found->alias = collective.with_in_place(is_in_place).alias(rank());
    }
    found->calls.push_back(&call);
    note_used(used, *found, rank(), call, i);
  }
  GC3_CHECK(check_apart(used));
  std::vector<Planned> all;
  for (const Alike& group : groups) {
    const Call& first = *group.calls.front();
    if (first.op == model::ReduceOp::premulsum && !first.has_lists()) {
      GC3_ASSIGN(Planned made, planned(first));
      all.push_back(std::move(made));
      continue;
    }
    // Also one call alone: ranks agree on that whatever their lists are, while equal blocks travel in another way.
    VCall made = joined(group.collective, rank(), group.calls);
    GC3_ASSIGN(const Found found, find(group.collective, made, group.in_place));
    all.push_back({found, std::move(made), group.alias});
  }
  return all;
}

Status Communicator::run_now(const Planned& planned, const Interrupted& interrupted) {
  const auto limit = std::visit([](const auto& call) { return call.timeout_s; }, planned.call);
  cpu::Membership::Turn turn;
  GC3_CHECK(core_->enter(turn, limit));
  return run_found(planned.found, turn, interrupted, [&](ProcessProgram& program) {
    if (const auto* const call = std::get_if<cpu::RankCall>(&planned.call)) {
      return serve(planned.found, program, *call, turn, interrupted);
    }
    const VCall& call = std::get<VCall>(planned.call);
    Status status = program.run_v(turn, call.buffers(), interrupted);
    // Then all ranks find that, before they send anything.
    if (!call.arrays.empty() && !status.ok() && status.error().code == ErrorCode::NoVForm) {
      return run_flat(planned, program, turn, interrupted);
    }
    return status;
  });
}

// Many arrays as blocks of equal length, in copies of the buffers, for a program that does not serve the v-form.
Status Communicator::run_flat(const Planned& planned, ProcessProgram& program, const cpu::Membership::Turn& turn,
                              const Interrupted& interrupted) {
  const VCall& call = std::get<VCall>(planned.call);
  const std::size_t element = model::size_of(call.type);
  std::size_t count = 0;
  for (const std::uint64_t array : call.arrays) count += array;
  const auto bytes_of = [&](const std::vector<std::uint8_t*>& at) {
    return at.size() / call.arrays.size() * count * element;
  };
  std::array<std::unique_ptr<std::uint8_t[]>, 2> copies;
  std::array<std::uint8_t*, 2> flat{};
  for (const Buffer buffer : {Buffer::input, Buffer::output}) {
    if (planned.alias && planned.alias->inner == buffer) continue;
    const auto i = static_cast<std::size_t>(buffer);
    const std::uint64_t bytes = bytes_of(buffer == Buffer::input ? call.input : call.output);
    if (bytes != 0) copies[i].reset(new (std::nothrow) std::uint8_t[bytes]);
    if (bytes != 0 && copies[i] == nullptr) {  // the others wait for this rank
      return core_->group().give_up(Diagnostic(
          ErrorCode::OutOfMemory, core_->group().who(rank()) + " has no " + std::to_string(bytes) +
                                      " bytes for a copy of the arrays of the " + std::string(name_of(buffer))));
    }
    flat[i] = copies[i].get();
    if (planned.alias) flat[1 - i] = flat[i] + planned.alias->offset * count * element;
  }
  const auto move = [&](const std::vector<std::uint8_t*>& at, std::uint8_t* copy, bool out) {
    for (std::size_t i = 0; i < at.size(); ++i) {
      const std::size_t bytes = call.arrays[i % call.arrays.size()] * element;
      copy_bytes(out ? at[i] : copy, out ? copy : at[i], bytes);
      copy += bytes;
    }
  };
  move(call.input, flat[0], false);
  GC3_CHECK(program.run(turn, {flat[0], flat[1], count, call.type, call.op, {}, call.timeout_s}, interrupted));
  move(call.output, flat[1], true);
  return {};
}

void Communicator::wait(const std::shared_future<Status>& done, const Interrupted& interrupted) {
  bool given_up = false;
  while (done.wait_for(kLook) != std::future_status::ready) {
    if (given_up || !interrupted || !interrupted()) continue;
    given_up = true;
    abort();
  }
}

Status Communicator::check_goes_on(const std::shared_future<Status>& done) const {
  if (done.wait_for(std::chrono::seconds(0)) == std::future_status::ready) return {};
  GC3_CHECK(check_thread());
  return lock_.here() ? Status() : usable();
}

Status Communicator::check_thread() const {
  if (busy() && progress_.runs_here()) {
    return Diagnostic(ErrorCode::NestedCall, "within `done`, which is called by the thread of the started calls");
  }
  GC3_CHECK(lock_.check_maker());
  return core_->check_thread();
}

Status Communicator::check_close() const {
  if (messages_->notifies_here()) {
    return Diagnostic(ErrorCode::NestedCall, "within `done`, which is called by the thread of the started messages");
  }
  return check_thread();
}

Status Communicator::settle(const Interrupted& interrupted) {
  GC3_CHECK(check_thread());
  if (!busy() || !lock_.here()) return {};
  GC3_ASSIGN(const std::shared_future<Status> last, progress_.start([] { return Status(); }));
  wait(last, interrupted);
  return {};
}

template <class Work>
Result<std::shared_future<Status>> Communicator::begin(Work work, Done done) {
  if (!done) return progress_.start(std::move(work));
  return progress_.start([work = std::move(work), done = std::move(done)] {
    Status status = guarded(work);
    done(status);
    return status;
  });
}

Result<std::shared_future<Status>> Communicator::start(const Call& call, Done done) {
  if (call.has_lists()) return start(std::span<const Call>(&call, 1), std::move(done));
  GC3_CHECK(usable());
  GC3_ASSIGN(Planned one, planned(call));
  return begin([this, one = std::move(one)] { return run_now(one, {}); }, std::move(done));
}

Result<std::shared_future<Status>> Communicator::start(VCall call, Done done) {
  GC3_CHECK(usable());
  GC3_ASSIGN(const Found found, find(call));
  return begin([this, one = Planned{found, std::move(call)}] { return run_now(one, {}); }, std::move(done));
}

Result<std::shared_future<Status>> Communicator::start(std::span<const Call> calls, Done done) {
  GC3_CHECK(usable());
  GC3_ASSIGN(std::vector<Planned> all, planned(calls));
  return begin(
      [this, all = std::move(all)]() -> Status {
        for (const Planned& one : all) GC3_CHECK(run_now(one, {}));
        return {};
      },
      std::move(done));
}

}  // namespace gc3::comm
