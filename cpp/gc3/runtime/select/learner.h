// Learns which of a few programs is the fastest for calls of one class, while these calls run.
//
// A learner knows neither programs nor clocks. It says which program the next calls run, and is told how long they
// took. Every rank has one, and all of them are told the same numbers at the same call, so all of them say the same:
// there is nothing else to agree on. So there are only integers here, and no time of day.
//
// Calls come in legs: so many calls of one program. A timed leg is short; the ranks exchange its times before the next
// call. The others are free of cost. At first and after a change of load the programs race: in each round every
// program that is left has a timed leg, and those that are much slower than the best are out. Later the best one is
// looked at from time to time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gc3::select {

class Learner {
 public:
  static constexpr std::uint32_t kLook = 3;  // calls of a timed leg
  static constexpr std::uint32_t kPeek = 2;  // calls of the first one of a program, which may be very slow
  // Calls between two of them when nothing is to be tried: the more, the longer an exchange takes beside a call.
  static constexpr std::uint32_t kRest = 250;
  static constexpr std::uint32_t kMostRest = 1000;
  static constexpr std::size_t kMostArms = 12;
  static constexpr std::uint32_t kDefaultShare = 20'000;

  // One of the programs. They are numbered from 0, the one that the table has.
  struct Leg {
    std::uint32_t arm = 0;
    std::uint32_t calls = 0;
    bool timed = false;
  };

  // Calls begin with program 0. If another one, `known`, was the best in an earlier run, only it is tried at first.
  // `share`: time that trials may cost, in millionths of the time of all calls.
  explicit Learner(std::size_t arms, std::size_t known = 0, std::uint32_t share = kDefaultShare);

  // The next leg. `ready`: a bit for each program that can be run now.
  Leg next(std::uint32_t ready);
  // How long a call of a timed leg took, and the exchange of its times.
  void heard(const Leg& leg, std::uint64_t ns, std::uint64_t exchange_ns);
  // This program cannot be run.
  void exclude(std::uint32_t arm);

  std::uint32_t best() const { return best_; }
  std::uint64_t best_ns() const { return best_ns_; }
  // Of a program under the present load; 0: not known.
  std::uint64_t time_of(std::uint32_t arm) const { return arms_[arm].mean(); }
  // Whether no program is to be tried under the present load any more.
  bool settled() const { return settled_; }
  std::uint64_t calls() const { return calls_; }
  // How often another load was noticed.
  std::uint32_t changes() const { return changes_; }
  // What trials have cost, and the time of all calls.
  std::uint64_t spent_ns() const { return spent_; }
  std::uint64_t total_ns() const { return total_; }

 private:
  struct Arm {
    bool excluded = false;
    bool out = false;  // of the race
    std::uint32_t looks = 0;
    std::uint64_t sum = 0;
    std::uint64_t mean() const { return looks == 0 ? 0 : sum / looks; }
  };
  // What was found under a load that is over.
  struct Load {
    std::vector<Arm> arms;
    std::uint32_t best = 0;
  };

  bool may_spend(std::uint64_t ns) const;
  std::uint32_t rest() const;
  void race(const Leg& leg, std::uint64_t ns);
  void end_round();
  void watch(std::uint64_t ns);
  void change_load(std::uint64_t ns);
  void lead(std::uint32_t arm);

  std::uint32_t share_;
  std::vector<Arm> arms_;
  std::vector<Load> loads_;  // the latest last
  std::uint32_t best_ = 0;
  std::uint64_t best_ns_ = 0;
  std::uint64_t exchange_ns_ = 0;  // as long as exchanges take lately
  bool settled_ = false;
  std::uint32_t round_ = 0;
  std::uint32_t strange_ = 0;  // looks in a row that differ from what is known
  bool rested_ = false;        // the last leg was not timed
  std::uint64_t calls_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t spent_ = 0;
  std::uint32_t changes_ = 0;
};

}  // namespace gc3::select
