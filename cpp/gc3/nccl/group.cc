#include "gc3/nccl/group.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <system_error>
#include <utility>
#include <vector>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/guarded.h"
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
  struct Op {
    int op;
    std::shared_ptr<Communicator> of;
  };
  std::vector<Op> ops;  // destroyed at its end

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

bool is_error(int answer) { return answer != kSuccess && answer != kInProgress; }

// Gives a call to NCCL, and counts it unless NCCL refuses it.
int leave_to_nccl(const Call& call) {
  const int answer = pass_on(call);
  if (!is_error(answer)) Overlay::get().log().left(call);
  return answer;
}

int end_group(bool grouped) { return grouped ? ask("ncclGroupEnd", Real::get().group_end) : int{kSuccess}; }

void destroy_ops(std::vector<Group::Op> ops) {
  for (const auto& [op, of] : ops) {
    Held held;
    if (of->progress()->closed() || !held.add(of->member()).ok()) continue;  // they have ended with the communicator
    static_cast<void>(ask("ncclRedOpDestroy", Real::get().destroy_op, op, of->member().comm));
  }
}

// The communicators of some calls, which are in progress as long as this lives.
class Running {
 public:
  Running() = default;
  Running(Running&&) = default;
  Running& operator=(Running&&) = delete;
  ~Running() { end(kSuccess); }
  Status begin(const std::vector<Part>& parts) {
    for (const Part& part : parts) {
      GC3_CHECK(part.communicator->progress()->begin());
      begun_.push_back(part.communicator->progress());
    }
    return {};
  }
  std::vector<std::shared_ptr<Progress>> defer() {
    for (const auto& one : begun_) one->defer();
    return begun_;
  }
  void end(int answer) {
    for (const auto& one : std::exchange(begun_, {})) one->end(answer);
  }

 private:
  std::vector<std::shared_ptr<Progress>> begun_;
};

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

// Prepares one program of each part at once, then the next: all ranks of a communicator may be in this thread.
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

// Parts whose ranks must talk to each other before the calls. Those that may be of one communicator are together,
// because NCCL needs the calls of all its ranks in this thread at once.
struct Team {
  std::vector<Part*> unprepared = {};
  std::vector<Part*> new_here = {};  // of these, those whose ranks must compare tables
  std::unique_ptr<Communicator::Agreement> agreement = nullptr;
  std::future<Status> settled = {};  // valid: in another thread
};
// The calls of a group, or one call outside of groups.
struct Calls {
  std::vector<Part> parts;
  bool grouped;
  std::vector<std::vector<Call>> given;  // sends and receives as the caller gave them; for each part
  std::vector<Team> teams;
  std::vector<Group::Op> ops;
  Running running;
};

// Finds what the ranks must do together before the calls, where that is possible.
Status find_unprepared(Calls& calls) {
  std::vector<Part*> unprepared;
  for (Part& part : calls.parts) {
    if (!must_agree(part) && !must_prepare(part)) continue;
    GC3_ASSIGN(const bool captured, any_captured(part));
    if (captured) {
      part.left = "a first call, which is captured: make one before the capture";
      continue;
    }
    unprepared.push_back(&part);
  }
  for (const Part* const part : unprepared) {
    if (part->communicator->member().in_progress()) return Progress::early();
  }
  // No two ranks of a communicator have the same device.
  const auto device = [](const Part* part) { return part->communicator->member().device.get(); };
  const bool apart = std::ranges::adjacent_find(unprepared, std::ranges::not_equal_to(), device) == unprepared.end();
  for (Part* const part : unprepared) {
    if (calls.teams.empty() || apart) calls.teams.emplace_back();
    calls.teams.back().unprepared.push_back(part);
    if (must_agree(*part)) calls.teams.back().new_here.push_back(part);
  }
  return {};
}

void begin_agreeing(Team& team) {
  std::vector<Communicator*> all;
  for (Part* const part : team.new_here) all.push_back(part->communicator.get());
  if (!all.empty() && team.agreement == nullptr) team.agreement = Communicator::begin_agreeing(all);
}

// Lets the ranks agree on what is new to them.
Status settle(Team& team) {
  begin_agreeing(team);
  if (team.agreement != nullptr) GC3_CHECK(Communicator::end_agreeing(*team.agreement));
  for (Part* const part : team.unprepared) {
    if (!part->communicator->disagreement().empty()) part->left = part->communicator->disagreement();
  }
  return prepare(team.unprepared);
}

// Begins that, and returns when one team has begun. Each of several has a thread: another rank may make their calls in
// any order. All calls come after the last has settled, as NCCL's ncclGroupEnd connects all before it launches any.
void begin_settling(Calls& calls) {
  if (calls.teams.size() == 1) return begin_agreeing(calls.teams.front());
  const auto begun = std::make_shared<std::atomic<bool>>(false);
  const auto begin = [begun](Team& team) {
    begin_agreeing(team);
    *begun = true;
    begun->notify_all();
  };
  for (Team& team : calls.teams) {
    try {
      team.settled = std::async(std::launch::async, [&team, begin] {
        begin(team);
        return settle(team);
      });
    } catch (const std::system_error&) {  // no more threads
      begin(team);
    }
  }
  begun->wait(false);
}

Status end_settling(Calls& calls) {
  Status all;
  for (Team& team : calls.teams) {
    Status one = team.settled.valid() ? team.settled.get() : settle(team);
    if (all.ok()) all = std::move(one);
  }
  return all;
}

void decide(Part& part) {
  if (!part.left.empty()) return;
  if (!part.communicator->agreed()) part.left = "the ranks have not compared their programs yet";
  if (!part.communicator->disagreement().empty()) part.left = part.communicator->disagreement();
  for (const Item& item : part.items) {
    if (!part.left.empty()) return;
    if (const std::string* const why = refusal(item)) part.left = *why;
  }
}

int leave_to_nccl(const Part& part, const std::vector<Call>& calls) {
  const cuda::Current current(*part.communicator->member().device);  // this thread may be the overlay's
  int answer = kSuccess;
  for (const Call& call : calls) {
    part.communicator->explain(call, part.left);
    if (const Status status = part.communicator->follow(call.stream); !status.ok()) return answer_to(status.error());
    const int given = leave_to_nccl(call);
    if (is_error(given)) return given;
    Overlay::get().log().left_because(call, part.left);
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

// Makes the calls of which the ranks know all that they must. NCCL's group is open, if there is one.
int execute(Calls& calls) {
  const auto in_nccl = [&] {
    Held held;
    int answer = kSuccess;
    for (std::size_t i = 0; i < calls.parts.size(); ++i) {
      Part& part = calls.parts[i];
      decide(part);
      if (part.left.empty()) continue;
      int given = kSuccess;
      if (const Status status = held.add(part.communicator->member()); !status.ok()) {
        given = answer_to(status.error());
      } else if (custom(part)) {
        given = answer_to(Diagnostic(ErrorCode::BadOption, "gc3CollRun: " + part.left));
      } else {
        given = leave_to_nccl(part, calls.given[i]);
      }
      answer = worse(answer, given);
    }
    return worse(answer, end_group(calls.grouped));
  };
  const int answer = in_nccl();
  if (is_error(answer)) return answer;
  const Status launched = launch(calls.parts);
  return launched.ok() ? answer : answer_to(launched.error());
}

// The same for calls before which the ranks talk to each other. NCCL's group has ended, because an exchange is a call
// of its own. `before`: NCCL's answer to that end. `begun`: the ranks have begun to talk.
int execute_first(Calls& calls, int before, bool begun) {
  int answer = before;
  const Status status = guarded([&]() -> Status {
    for (auto part = calls.parts.begin(); before == kInProgress && part != calls.parts.end(); ++part) {
      GC3_CHECK(wait_for_last(part->communicator->member(), part->communicator->timeout_s()));
    }
    if (!begun) begin_settling(calls);
    GC3_CHECK(end_settling(calls));
    answer = calls.grouped ? ask("ncclGroupStart", Real::get().group_start) : kSuccess;
    if (answer == kSuccess) answer = worse(before, execute(calls));
    return {};
  });
  return status.ok() ? answer : worse(before, answer_to(status.error()));
}

// Does the same in a thread of its own, because a call of a non-blocking communicator waits for no other rank.
int execute_apart(const std::shared_ptr<Calls>& calls, int before, bool begun) {
  const auto deferred = calls->running.defer();
  const auto work = [before, begun](Calls& of) {
    const int answer = execute_first(of, before, begun);
    destroy_ops(std::move(of.ops));
    // Whoever ends a communicator waits for `running`, so that these are not the last references.
    of.teams.clear();
    of.parts.clear();
    of.running.end(answer);
    return answer;
  };
  try {
    const auto worker = std::make_shared<Worker>([calls, work] { work(*calls); });
    for (const auto& one : deferred) one->keep(worker);
  } catch (const std::system_error&) {  // no more threads
    return work(*calls);
  }
  return kInProgress;
}

// All calls of a group, or one call outside of groups. `ops`: what is destroyed afterwards.
int finish(std::vector<Part> parts, bool grouped, std::vector<Group::Op> ops = {}) {
  Calls calls{std::move(parts), grouped, {}, {}, std::move(ops), {}};
  const auto refuse = [&](const Diagnostic& problem) {
    static_cast<void>(end_group(grouped));
    destroy_ops(std::move(calls.ops));
    return answer_to(problem);
  };
  if (const Status status = calls.running.begin(calls.parts); !status.ok()) return refuse(status.error());
  for (const Part& part : calls.parts) {
    if (part.communicator->failed()) return refuse(part.communicator->check().error());
  }
  for (Part& part : calls.parts) {
    calls.given.emplace_back();
    for (const Item& item : part.items) calls.given.back().push_back(item.call);
    choose(part);
  }
  if (const Status status = find_unprepared(calls); !status.ok()) return refuse(status.error());
  if (calls.teams.empty()) {
    const int answer = execute(calls);
    destroy_ops(std::move(calls.ops));
    return answer;
  }
  const int before = end_group(grouped);
  const auto shared = std::make_shared<Calls>(std::move(calls));
  const auto non_blocking = [&] {
    const auto found = [](const Part& p) { return p.communicator->member().non_blocking.load(); };
    return before == kInProgress || std::ranges::any_of(shared->parts, found);
  };
  // The first call of NCCL's in the first exchange shows whether all communicators of the group are non-blocking.
  const bool begun = !non_blocking();
  if (begun) begin_settling(*shared);
  if (non_blocking()) return execute_apart(shared, before, begun);
  const int answer = execute_first(*shared, before, begun);
  destroy_ops(std::move(shared->ops));
  return answer;
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
  if (call.comm == nullptr || !overlay.active()) return leave_to_nccl(call);
  const Result<std::shared_ptr<Communicator>> found = overlay.communicator(call.comm);
  if (!found.ok()) return answer_to(found.error());
  const std::shared_ptr<Communicator>& communicator = found.value();
  if (communicator == nullptr) return leave_to_nccl(call);
  if (const Status ready = communicator->progress()->ready(); !ready.ok()) return answer_to(ready.error());
  if (communicator->is_idle()) return leave_to_nccl(call);
  Group& open = group();
  if (open.depth > 0) {
    // What NCCL refuses at once it refuses here, too.
    const bool clear = type_of(call) && call.op >= 0 && call.root >= 0 &&
                       static_cast<std::uint32_t>(call.root) < communicator->member().ranks;
    if (!clear) return leave_to_nccl(call);
    open.of(communicator).items.push_back({call});
    return kSuccess;
  }
  if (communicator->agreed() && communicator->choose(call) == nullptr) {
    communicator->explain_none(call);
    if (const Status status = communicator->follow(call.stream); !status.ok()) return answer_to(status.error());
    return leave_to_nccl(call);
  }
  return finish({{communicator, {{call}}, ""}}, false);
}

int run_program(const Call& call, const std::shared_ptr<Communicator>& communicator, Prepared& program) {
  if (group().depth > 0) {
    group().of(communicator).items.push_back({call, &program, true});
    return kSuccess;
  }
  return finish({{communicator, {{call, &program, true}}, ""}}, false);
}

int group_start() {
  const int answer = ask("ncclGroupStart", Real::get().group_start);
  if (answer == kSuccess && !Inside::entered()) ++group().depth;
  return answer;
}

int group_end() {
  Group& open = group();
  if (Inside::entered() || open.depth == 0 || --open.depth > 0 || open.parts.empty()) return end_group(true);
  return finish(std::exchange(open.parts, {}), true, std::exchange(open.ops, {}));
}

int destroy_op(int op, Comm comm) {
  Group& open = group();
  if (!Inside::entered()) {
    const auto waits = [&](const Part& part) {
      return std::ranges::any_of(part.items, [&](const Item& i) { return i.call.comm == comm && i.call.op == op; });
    };
    const auto found = std::ranges::find_if(open.parts, waits);
    if (found != open.parts.end()) {
      open.ops.push_back({op, found->communicator});
      return kSuccess;
    }
  }
  return ask("ncclRedOpDestroy", Real::get().destroy_op, op, comm);
}

int group_simulate_end(void* info) {
  Group& open = group();
  const auto end = [info] { return ask("ncclGroupSimulateEnd", Real::get().group_simulate_end, info); };
  if (Inside::entered() || open.depth == 0) return end();
  --open.depth;
  int answer = kSuccess;
  for (const Part& part : std::exchange(open.parts, {})) {
    if (part.communicator->progress()->closed()) continue;
    for (const Item& item : part.items) answer = worse(answer, pass_on(item.call));
  }
  answer = worse(answer, end());
  destroy_ops(std::exchange(open.ops, {}));
  return answer;
}

}  // namespace gc3::nccl
