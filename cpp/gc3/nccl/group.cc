#include "gc3/nccl/group.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/nccl/exchange_pattern.h"
#include "gc3/nccl/overlay.h"
#include "gc3/nccl/report.h"

namespace gc3::nccl {
namespace {

// A call of a communicator, and the program that may serve it.
struct Item {
  Call call;
  Prepared* program = nullptr;
  bool custom = false;
};
// The calls of one communicator in a group, in their order. All of them are served by programs, or all by NCCL, so that
// they stay in order and no program waits for a call of NCCL that is launched later.
struct Part {
  std::shared_ptr<Communicator> communicator;
  std::vector<Item> items;
  std::string left;  // why NCCL serves them; empty: programs do
};

struct Group {
  int depth = 0;
  std::vector<Part> parts;
  std::vector<std::pair<int, Comm>> ops;  // destroyed at its end

  Part& of(const std::shared_ptr<Communicator>& communicator) {
    const auto found =
        std::find_if(parts.begin(), parts.end(), [&](const Part& p) { return p.communicator == communicator; });
    if (found != parts.end()) return *found;
    parts.push_back({communicator, {}, ""});
    return parts.back();
  }
};

int worse(int a, int b) { return a != kSuccess && a != kInProgress ? a : (b != kSuccess ? b : a); }

Group& group() {
  static thread_local Group group;
  return group;
}

void destroy_ops(Group& group) {
  for (const auto& [op, comm] : std::exchange(group.ops, {})) {
    static_cast<void>(ask("ncclRedOpDestroy", Real::get().destroy_op, op, comm));
  }
}

bool custom(const Part& part) { return std::ranges::any_of(part.items, &Item::custom); }

Result<bool> any_captured(const Part& part) {
  for (const Item& item : part.items) {
    GC3_ASSIGN(const bool capturing, part.communicator->capturing(item.call.stream));
    if (capturing) return true;
  }
  return false;
}

bool ready(const Item& item) {
  return item.program->engine != nullptr &&
         (item.program->loaded >> static_cast<unsigned>(*type_of(item.call)) & 1U) != 0;
}

const std::string* refusal(const Item& item) {
  const auto found = item.program->refused.find(static_cast<std::uint32_t>(*type_of(item.call)));
  return found == item.program->refused.end() ? nullptr : &found->second;
}

// Finds the programs of a part, as far as they can be known before the ranks have talked to each other.
void choose(Part& part) {
  const bool all_send =
      std::ranges::all_of(part.items, [](const Item& i) { return is_point_to_point(i.call.function); });
  if (all_send && Overlay::get().exchanges_are_collective()) {
    std::vector<Call> calls;
    for (const Item& item : part.items) calls.push_back(item.call);
    if (const auto whole = as_all_to_all(calls, part.communicator->member())) part.items = {{*whole}};
  }
  for (Item& item : part.items) {
    if (item.custom) continue;
    item.program = part.communicator->choose(item.call);
    if (item.program == nullptr) {
      part.left = is_point_to_point(item.call.function) ? "sends and receives" : "no program for the call";
      return;
    }
  }
}

// Whether the ranks have to compare tables: at their first collective call, whatever it is, because whether there is a
// program for it depends on the table.
bool must_agree(const Part& part) {
  return !part.communicator->agreed() &&
         std::ranges::any_of(part.items, [](const Item& item) { return !is_point_to_point(item.call.function); });
}

bool must_prepare(const Part& part) {
  return part.left.empty() &&
         std::ranges::any_of(part.items, [](const Item& item) { return !ready(item) && refusal(item) == nullptr; });
}

Status agree(std::vector<Part*>& parts) {
  std::vector<Communicator*> all;
  for (Part* const part : parts) all.push_back(part->communicator.get());
  return Communicator::agree(all);
}

// Prepares, for each part, one program after the other; those of different parts at once, since the ranks of a
// communicator may all be in this thread.
Status prepare(const std::vector<Part*>& parts) {
  for (;;) {
    std::vector<Communicator::Wanted> wanted;
    for (Part* const part : parts) {
      if (!part->left.empty()) continue;  // its calls need not have programs
      const auto next =
          std::ranges::find_if(part->items, [](const Item& item) { return !ready(item) && refusal(item) == nullptr; });
      if (next == part->items.end()) continue;
      wanted.push_back({part->communicator.get(), next->program, *type_of(next->call)});
    }
    if (wanted.empty()) return {};
    GC3_CHECK(Communicator::prepare(wanted));
  }
}

Status let_agree(std::vector<Part*>& new_here, const std::vector<Part*>& unprepared) {
  if (!new_here.empty()) GC3_CHECK(agree(new_here));
  for (Part* const part : unprepared) {
    if (!part->communicator->disagreement().empty()) part->left = part->communicator->disagreement();
  }
  return prepare(unprepared);
}

// Lets the ranks agree on what is new to them, where that is possible. `grouped`: a group of NCCL is open; it ends
// before, because an exchange is a call of its own.
Result<int> settle(std::vector<Part>& parts, bool grouped) {
  std::vector<Part*> new_here;
  std::vector<Part*> unprepared;
  for (Part& part : parts) {
    const bool agree_first = must_agree(part);
    if (!agree_first && !must_prepare(part)) continue;
    GC3_ASSIGN(const bool captured, any_captured(part));
    if (captured) {
      part.left = "a first call, which is captured: make one before the capture";
      continue;
    }
    if (agree_first) new_here.push_back(&part);
    unprepared.push_back(&part);
  }
  int answer = kSuccess;
  for (const Part* const part : unprepared) {
    if (!part->communicator->member().in_progress()) continue;
    return Diagnostic(ErrorCode::BadOption,
                      "a call before the last one of a non-blocking communicator has ended: wait until "
                      "ncclCommGetAsyncError no longer says ncclInProgress");
  }
  if (!unprepared.empty()) {
    if (grouped) answer = ask("ncclGroupEnd", Real::get().group_end);
    const Status status = let_agree(new_here, unprepared);
    if (grouped) answer = worse(answer, ask("ncclGroupStart", Real::get().group_start));
    if (!status.ok()) return status.error();
  }
  for (Part& part : parts) {
    if (!part.left.empty()) continue;
    if (!part.communicator->agreed()) part.left = "the ranks have not compared their programs yet";
    if (!part.communicator->disagreement().empty()) part.left = part.communicator->disagreement();
    for (const Item& item : part.items) {
      if (!part.left.empty()) break;
      if (const std::string* const why = refusal(item)) part.left = *why;
    }
  }
  return answer;
}

int leave_to_nccl(const Part& part, const std::vector<Call>& calls) {
  int answer = kSuccess;
  for (const Call& call : calls) {
    part.communicator->explain(call, part.left);
    Overlay::get().log().left(call);
    Overlay::get().log().left_because(call, part.left);
    if (const Status status = part.communicator->follow(call.stream); !status.ok()) return answer_to(status.error());
    const int given = pass_on(call);
    if (given != kSuccess && given != kInProgress) return given;
    if (given == kInProgress) answer = given;
  }
  return answer;
}

Status launch(std::vector<Part>& parts) {
  for (const Part& part : parts) {
    if (!part.left.empty()) continue;
    GC3_CHECK(part.communicator->check());
    for (const Item& item : part.items) GC3_CHECK(part.communicator->reserve(item.call, *item.program));
  }
  for (const Part& part : parts) {
    if (!part.left.empty()) continue;
    for (const Item& item : part.items) {
      using Clock = std::chrono::steady_clock;
      const Clock::time_point begin = Overlay::get().log().on() ? Clock::now() : Clock::time_point();
      GC3_CHECK(part.communicator->launch(item.call, *item.program));
      if (Overlay::get().log().on()) {
        Overlay::get().log().served(item.call, item.program->recipe->text, (Clock::now() - begin).count());
      }
    }
  }
  return {};
}

// All calls of a group, or one call outside of groups. `end`: ends NCCL's group, if there is one.
template <class End>
int finish(std::vector<Part>& parts, bool grouped, const End& end) {
  for (const Part& part : parts) {
    if (!part.communicator->failed()) continue;
    static_cast<void>(end());
    return answer_to(part.communicator->check().error());
  }
  std::vector<std::vector<Call>> given;  // sends and receives as the caller gave them
  for (Part& part : parts) {
    given.emplace_back();
    for (const Item& item : part.items) given.back().push_back(item.call);
    choose(part);
  }
  const Result<int> settled = settle(parts, grouped);
  if (!settled.ok()) {
    static_cast<void>(end());
    return answer_to(settled.error());
  }
  int answer = settled.value();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].left.empty()) continue;
    if (custom(parts[i])) {
      answer = worse(answer, answer_to(Diagnostic(ErrorCode::BadOption, "gc3CollRun: " + parts[i].left)));
      continue;
    }
    answer = worse(answer, leave_to_nccl(parts[i], given[i]));
  }
  answer = worse(answer, end());
  if (answer != kSuccess && answer != kInProgress) return answer;
  const Status launched = launch(parts);
  return launched.ok() ? answer : answer_to(launched.error());
}

}  // namespace

int answer_to(const Diagnostic& problem) {
  report_problem(problem.str());
  if (problem.code == ErrorCode::Timeout || problem.code == ErrorCode::Aborted || problem.code == ErrorCode::RankLost) {
    return kRemoteError;
  }
  return problem.info().kind == ErrorKind::User ? kInvalidUsage : kUnhandledCudaError;
}

int submit(const Call& call) {
  if (Inside::entered()) return pass_on(call);
  Overlay& overlay = Overlay::get();
  if (call.comm == nullptr || !overlay.active()) {
    overlay.log().left(call);
    return pass_on(call);
  }
  const std::shared_ptr<Communicator> communicator = overlay.communicator(call.comm);
  if (communicator == nullptr) {
    overlay.log().left(call);
    return pass_on(call);
  }
  Group& open = group();
  if (open.depth > 0) {
    // What NCCL refuses at once it refuses here, too.
    const bool clear = type_of(call) && call.op >= 0 && call.root >= 0 &&
                       static_cast<std::uint32_t>(call.root) < communicator->member().ranks;
    if (!clear) return pass_on(call);
    open.of(communicator).items.push_back({call});
    return kSuccess;
  }
  if (communicator->agreed() && communicator->choose(call) == nullptr) {
    overlay.log().left(call);
    communicator->explain_none(call);
    if (const Status status = communicator->follow(call.stream); !status.ok()) return answer_to(status.error());
    return pass_on(call);
  }
  std::vector<Part> parts = {{communicator, {{call}}, ""}};
  return finish(parts, false, [] { return kSuccess; });
}

int run_program(const Call& call, const std::shared_ptr<Communicator>& communicator, Prepared& program) {
  if (group().depth > 0) {
    group().of(communicator).items.push_back({call, &program, true});
    return kSuccess;
  }
  std::vector<Part> parts = {{communicator, {{call, &program, true}}, ""}};
  return finish(parts, false, [] { return kSuccess; });
}

int group_start() {
  const int answer = ask("ncclGroupStart", Real::get().group_start);
  if (answer == kSuccess && !Inside::entered()) ++group().depth;
  return answer;
}

int group_end() {
  Group& open = group();
  const auto end = [] { return ask("ncclGroupEnd", Real::get().group_end); };
  if (Inside::entered() || open.depth == 0) return end();
  if (--open.depth > 0 || open.parts.empty()) return end();
  std::vector<Part> parts = std::exchange(open.parts, {});
  const int answer = finish(parts, true, end);
  destroy_ops(open);
  return answer;
}

int destroy_op(int op, Comm comm) {
  Group& open = group();
  const bool waits = !Inside::entered() && std::ranges::any_of(open.parts, [&](const Part& part) {
    return std::ranges::any_of(part.items, [&](const Item& i) { return i.call.comm == comm && i.call.op == op; });
  });
  if (!waits) return ask("ncclRedOpDestroy", Real::get().destroy_op, op, comm);
  open.ops.emplace_back(op, comm);
  return kSuccess;
}

int group_simulate_end(void* info) {
  Group& open = group();
  const auto end = [info] { return ask("ncclGroupSimulateEnd", Real::get().group_simulate_end, info); };
  if (Inside::entered() || open.depth == 0) return end();
  --open.depth;
  int answer = kSuccess;
  for (const Part& part : std::exchange(open.parts, {})) {
    for (const Item& item : part.items) answer = worse(answer, pass_on(item.call));
  }
  answer = worse(answer, end());
  destroy_ops(open);
  return answer;
}

}  // namespace gc3::nccl
