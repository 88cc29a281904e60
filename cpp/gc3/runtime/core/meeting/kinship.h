// Decides which processes belong to one launch. Several launches of a user may have the same job name, for example the
// same MASTER_ADDR and MASTER_PORT.
//
// A process cannot know this by itself. The system knows which process started which, and the environment of each
// process, in which a launcher gives each rank its number. These are the rules:
//
// - Ranks with the same launcher belong together. A launcher that has started one other rank of the job has started all
//   of them. So a rank with another launcher does not belong to them: it is of another launch, or a crashed launch has
//   left it behind.
// - A rank whose launcher has ended does not join a rank whose launcher is alive, because that launcher may still start
//   its other ranks.
// - Process 1 may have started its children or adopted them. Among its children, and among ranks whose launchers have
//   ended, those that started long before the others are of an earlier launch.
// - A launcher in an outer PID namespace (docker exec) is unknown. Ranks with unknown launchers belong together if they
//   are in one control group and have started together.
// - If each rank has a different launcher, the launchers must be of one session, like the subshells of a script. If the
//   ranks were started in several terminals, they must share a secret. In both cases there may be only one process for
//   each rank.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/runtime/core/meeting/peer_process.h"

namespace gc3::core {

// A rank's process, and its origin.
struct Origin {
  std::uint32_t rank = 0;
  pid_t process = 0;
  pid_t top = 0;       // the process, or its outermost ancestor that was told to be this rank (a shell, or a wrapper
                       // like `timeout`)
  pid_t launcher = 0;  // the parent of `top`; 0: this process cannot see it
  bool left = false;   // the launcher has ended, and the system has given `top` another parent
  pid_t session = 0;
  std::string control_group;     // without a launcher only
  std::uint64_t started = 0;     // of `top`: see ProcessFacts
  std::vector<pid_t> ancestors;  // the launcher, its parent, and so on within their session
  bool declared = true;          // whether the environment says which rank of which job the process is
};

class Kinship {
 public:
  // `job`: the name of the job, see base/launch.h. `secret`: whether the ranks prove to each other that they know one.
  Kinship(std::string job, bool secret) : job_(std::move(job)), secret_(secret) {}

  // Without `rank`, the rank is taken from the process's environment.
  Origin origin_of(pid_t process, std::optional<std::uint32_t> rank = {}) const;

  // Whether one process has started both, or one of the two has started the other, or unknown ones both together.
  static bool kin(const Origin& a, const Origin& b);
  // Whether the two processes may be of one launch, by the rules that concern only these two.
  bool may_join(const Origin& a, const Origin& b) const;

  // The message for two processes that may not join: why, and what to do.
  std::string difference(const Origin& a, const Origin& b) const;

  // A message if two processes were told to be the same rank of the job. `members`: its ranks, this process first.
  std::optional<std::string> ambiguity(const std::vector<Origin>& members) const;

  // Messages on processes that the launcher of `own` has started as ranks of jobs of other names.
  std::vector<std::string> other_names(const Origin& own) const;

 private:
  struct Claim {
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::string job;
  };
  // What was read of a process. Ranks that join one after the other have ancestors in common, so the same files would
  // be read for each rank.
  struct Seen {
    std::optional<ProcessFacts> facts;
    std::optional<Claim> claim;
    bool has_facts = false;
    bool has_claim = false;
  };
  Seen& seen(pid_t process) const;
  std::optional<ProcessFacts> facts_of(pid_t process) const;
  std::optional<Claim> claim_of(pid_t process) const;
  bool is_left(pid_t process) const;
  std::vector<pid_t> children_of(pid_t process) const;
  // Whether a crashed launch before that of `from` may have left the process behind.
  static bool may_be_left_over(const Origin& origin, const Origin& from);
  static bool are_unknown_together(const Origin& a, const Origin& b);
  static bool have_common_ancestor(const Origin& a, const Origin& b);
  bool has_other_ranks(const Origin& origin) const;

  std::string job_;
  bool secret_;
  // Holds for a moment, after which all is read again: see kMoment.
  mutable std::map<pid_t, Seen> seen_;
  mutable std::chrono::steady_clock::time_point seen_since_;
};

}  // namespace gc3::core
