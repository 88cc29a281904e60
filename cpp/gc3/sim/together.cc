#include "gc3/sim/together.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <utility>

#include "gc3/base/errors/simulator.h"
#include "gc3/base/interrupt.h"
#include "gc3/sim/serial.h"

namespace gc3::sim {
namespace {

constexpr Time kNever = std::numeric_limits<Time>::max();

}  // namespace

struct Together::Job {
  Job(const Simulator& simulator, Call given_call, Options given_options, std::span<Time> free)
      : call(std::move(given_call)),
        options(std::move(given_options)),
        engine(simulator, call, options, free),
        launched(simulator.program().ranks.size()),
        held(static_cast<std::uint32_t>(launched.size())),
        running(held) {
    engine.hold_ranks();
  }
  Call call;
  Options options;
  Serial engine;
  std::vector<bool> launched;
  std::uint32_t held;     // ranks that are not launched yet
  std::uint32_t running;  // ranks whose end has not been returned
};

// The job with the next event, and the event of another job before which it may continue.
struct Together::Turn {
  std::uint32_t job = kNone;
  Time at = kNever;
  std::uint32_t other = kNone;
  Time until = kNever;
};

Together::Together(std::size_t resources) : free_(resources), use_(resources) {}
Together::Together(Together&&) noexcept = default;
Together& Together::operator=(Together&&) noexcept = default;
Together::~Together() = default;

Result<std::uint32_t> Together::add(const Simulator& simulator, Call call, Options options) {
  GC3_CHECK(ir::check_plain(simulator.program(), "a simulation of several programs"));
  GC3_CHECK(check(options, call, static_cast<std::uint32_t>(simulator.program().ranks.size())));
  GC3_CHECK(simulator.check_work(call, options.protocol));
  const MachineData& machine = simulator.machine().data();
  if (machine.cores != 0)
    return bad_simulation("ranks of this machine share processors, which run one program at a time");
  if (machine.resources.size() > free_.size()) return bad_simulation("a machine of more resources than announced");
  if (options.sharing != Sharing::serial || options.record) {
    return bad_simulation("programs that run together use links one slice after the other, and are not recorded");
  }
  const auto job = static_cast<std::uint32_t>(jobs_.size());
  jobs_.push_back(std::make_unique<Job>(simulator, std::move(call), std::move(options), std::span(free_)));
  active_.push_back(job);
  return job;
}

Status Together::launch(std::uint32_t job, std::uint32_t rank, Time at) {
  if (job >= jobs_.size()) return bad_simulation("program " + std::to_string(job) + " does not exist");
  if (jobs_[job] == nullptr || rank >= jobs_[job]->launched.size() || jobs_[job]->launched[rank]) {
    return bad_simulation("rank " + std::to_string(rank) + " of program " + std::to_string(job) +
                          " does not exist, or has been launched");
  }
  if (at < now_) return bad_simulation("a launch at a time that has passed");
  jobs_[job]->launched[rank] = true;
  --jobs_[job]->held;
  jobs_[job]->engine.launch(rank, at);
  collect_ends(job);
  return {};
}

Result<std::optional<Together::End>> Together::advance(Time limit) {
  for (;;) {
    GC3_ASSIGN(const Turn turn, next_turn());
    const Time first_end = ends_.empty() ? kNever : ends_.front().time;
    if (std::min(first_end, turn.at) > limit || std::min(first_end, turn.at) == kNever) return std::optional<End>();
    if (first_end <= turn.at) {
      std::ranges::pop_heap(ends_, std::greater());
      const End end = ends_.back();
      ends_.pop_back();
      now_ = std::max(now_, end.time);
      if (--jobs_[end.job]->running == 0) retire(end.job);
      return std::optional(end);
    }
    run(turn, std::min(limit, first_end));
  }
}

Result<Together::Turn> Together::next_turn() {
  Turn turn;
  for (const std::uint32_t job : active_) {
    Job& of = *jobs_[job];
    if (!of.engine.waits()) {
      const Time at = of.engine.next_time();
      if (at < turn.at) {
        turn = {job, at, turn.job, turn.at};
      } else if (at < turn.until) {
        turn.other = job;
        turn.until = at;
      }
    } else if (of.held == 0 && !of.engine.finished()) {
      return of.engine.deadlock();
    }
  }
  return turn;
}

// The events of one program, up to the next one of another or until a rank ends.
void Together::run(const Turn& turn, Time limit) {
  Serial& engine = jobs_[turn.job]->engine;
  Breath breathe;
  while (engine.ended().empty() && !engine.waits()) {
    breathe();
    const Time at = engine.next_time();
    if (at > limit || at > turn.until || (at == turn.until && turn.other < turn.job)) break;
    now_ = at;
    engine.step();
  }
  collect_ends(turn.job);
}

void Together::collect_ends(std::uint32_t job) {
  Serial& engine = jobs_[job]->engine;
  for (const std::uint32_t rank : engine.ended()) {
    ends_.push_back({engine.outcome().rank_end[rank], job, rank});
    std::ranges::push_heap(ends_, std::greater());
  }
  engine.ended().clear();
}

void Together::retire(std::uint32_t job) {
  const Outcome& outcome = jobs_[job]->engine.outcome();
  for (std::size_t r = 0; r < outcome.use.size(); ++r) {
    use_[r].busy += outcome.use[r].busy;
    use_[r].bytes += outcome.use[r].bytes;
  }
  slice_ops_ += outcome.slice_ops;
  jobs_[job].reset();
  std::erase(active_, job);
}

}  // namespace gc3::sim
