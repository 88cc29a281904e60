// Several programs on one machine at once. Their transfers share its resources, one slice after the other; otherwise
// programs do not know of each other.
//
// Every rank of a program is launched by itself, at a time that may depend on when others ended. So whoever simulates
// more than programs (compute between them) alternates between its own events and `advance`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/sim/simulator.h"

namespace gc3::sim {

class Together {
 public:
  struct End {
    Time time = 0;
    std::uint32_t job = 0;
    std::uint32_t rank = 0;  // of the program
    auto operator<=>(const End&) const = default;
  };

  // For machines of up to so many resources.
  explicit Together(std::size_t resources);
  Together(Together&&) noexcept;
  Together& operator=(Together&&) noexcept;
  ~Together();

  // Adds a program, whose ranks do not run yet; returns its number. The simulator must outlive this. The machines of
  // all programs are the same, at the rates that each one's protocol reaches: with the same resources in one order. Of
  // the options, launch and delays are not used: see `launch`.
  Result<std::uint32_t> add(const Simulator& simulator, Call call, Options options);
  // The threadblocks of a rank begin at `at`, which is no earlier than anything that has been simulated.
  Status launch(std::uint32_t job, std::uint32_t rank, Time at);
  // Simulates until the next rank ends and returns that end; nothing if no rank ends up to `limit`. Equal ends are
  // returned by job, then by rank. A program that cannot finish is an error that names the cycle of waits.
  Result<std::optional<End>> advance(Time limit);
  // Of each resource, by the programs that have ended.
  const std::vector<ResourceUse>& use() const { return use_; }
  std::uint64_t slice_ops() const { return slice_ops_; }

 private:
  struct Job;
  struct Turn;

  Result<Turn> next_turn();
  void run(const Turn& turn, Time limit);
  void collect_ends(std::uint32_t job);
  void retire(std::uint32_t job);

  std::vector<std::unique_ptr<Job>> jobs_;  // null: all ranks have ended
  std::vector<std::uint32_t> active_;       // the others, by number
  std::vector<Time> free_;                  // from when each resource is free; executions keep spans of it
  std::vector<ResourceUse> use_;            // by programs that have ended
  std::vector<End> ends_;                   // known and not returned yet: a heap with the first one on top
  std::uint64_t slice_ops_ = 0;
  Time now_ = 0;
};

}  // namespace gc3::sim
