// Which processes are of one launch, where several launches of a user have the same name: the same MASTER_ADDR and
// MASTER_PORT, say.
//
// No process can tell by itself, but the system knows who has started whom, and with which environment: what a launcher
// has told each rank. Ranks that one process has started are of one launch. If it has started one other rank of the
// job, it has started all of them, and nobody else's rank belongs there: not that of another launch, nor one that a
// launch that has crashed has left behind. A rank whose launcher has ended therefore meets none whose launcher lives:
// those that the launcher will start may be yet to come. Where ranks are children of process 1, which may have started
// or adopted them, or where their launchers have ended, those that started long before are of an earlier launch. Where
// every rank has been started by somebody else, the launchers must have been started within one session, like the
// subshells of a script; in several terminals, only a secret says that ranks belong together. In both cases there may
// be only one process for each rank.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::core {

// A rank's process, and its origin.
struct Origin {
  std::uint32_t rank = 0;
  pid_t process = 0;
  pid_t top = 0;       // the process, or the outermost of those around it that were told to be this rank (a shell, a
                       // wrapper like `timeout`)
  pid_t launcher = 0;  // who has started that; 0: nobody whom this process can see
  bool left = false;   // by its launcher, which has ended: the system has given it another parent
  pid_t session = 0;
  std::uint64_t started = 0;     // of `top`: see ProcessFacts
  std::vector<pid_t> ancestors;  // the launcher, who has started that, and so on within their session
  bool declared = true;          // whether the launcher has said in the environment which rank of which job it is
};

class Kinship {
 public:
  // `job`: as base/launch.h has it. `secret`: whether the ranks prove to each other that they know one.
  Kinship(std::string job, bool secret) : job_(std::move(job)), secret_(secret) {}

  // Of the rank that the process says to be, or of the one that it was told to be.
  Origin origin_of(pid_t process, std::optional<std::uint32_t> rank = {}) const;

  // Whether one process has started both, or one of them the other.
  static bool kin(const Origin& a, const Origin& b);
  // Whether the processes may be of one launch, as far as they can tell alone.
  bool may_join(const Origin& a, const Origin& b) const;

  // Of two that may not join: why, and what to do.
  std::string difference(const Origin& a, const Origin& b) const;

  // Of a job whose ranks these are, the first of them that of this process: two processes that say to be the same rank
  // of it, so that nobody knows which of them is meant.
  std::optional<std::string> ambiguity(const std::vector<Origin>& members) const;

  // Processes that were told to be a rank of a job of another name by who has started `own`: of how they are named.
  std::vector<std::string> other_names(const Origin& own) const;

 private:
  struct Claim {
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::string job;
  };
  static std::optional<Claim> claim_of(pid_t process);
  static std::vector<pid_t> children_of(pid_t process);
  // By a launch that has crashed, before the one that `from` is of.
  static bool may_be_left_over(const Origin& origin, const Origin& from);
  static bool have_common_ancestor(const Origin& a, const Origin& b);
  bool has_other_ranks(const Origin& origin) const;

  std::string job_;
  bool secret_;
};

}  // namespace gc3::core
