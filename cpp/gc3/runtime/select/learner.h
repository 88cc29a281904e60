// Learns which of a few programs is the fastest for calls of one class, while these calls run.
//
// A learner knows neither programs nor clocks. It says which program the next calls run, and is told how long they
// took. Every rank has one, and all of them are told the same numbers at the same call, so all of them say the same:
// there is nothing else to agree on. So there are only integers here, and no time of day.
//
// Calls come in legs: so many calls of one program. After a timed leg the ranks exchange its times before the next
// call. The others are free of cost. At first and after a change of load the programs race: in each round every
// program that is left has a short timed leg, and those that are much slower than the best are out. Later the best one
// is looked at from time to time.
//
// A race is soon over, but the times of one program vary by more from one moment to another than programs differ. So
// those that were near the best challenge it afterwards, one after the other, in duels: legs in turn with the program
// in force, which stays until another one has won. Pairs of legs come at growing intervals.
//
// Where other threads want the same cores, a rank is stopped for milliseconds in the midst of a call. Few calls are
// hit, but these take most of the time, and a short leg does not show it. So a crowd is another state, in which there
// are no races, and all programs have duels.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace gc3::select {

class Learner {
 public:
  static constexpr std::uint32_t kLook = 3;  // calls of a short timed leg
  static constexpr std::uint32_t kPeek = 2;  // calls of the first one of a program, which may be very slow
  // Calls from one exchange to the next when nothing is to be tried: the more, the longer an exchange takes beside a
  // call.
  static constexpr std::uint32_t kPeriod = 250;
  static constexpr std::uint32_t kMostPeriod = 20'000;
  static constexpr std::size_t kMostArms = 12;
  static constexpr std::uint32_t kDefaultShare = 20'000;

  // One of the programs. They are numbered from 0, the one that the table has.
  struct Leg {
    std::uint32_t arm = 0;
    std::uint32_t calls = 0;
    bool timed = false;
  };
  // Of a timed leg, in ns.
  struct Times {
    std::uint64_t usual = 0;     // of a call that was not stopped
    std::uint64_t mean = 0;      // of a call, of all calls of the leg
    bool stopped = false;        // a few of them took a third of the time or more
    std::uint64_t between = 0;   // from a call's beginning to that of the next, since the timed leg before
    std::uint64_t exchange = 0;  // of the times of the leg before
  };

  // Calls begin with program 0. If another one, `known`, was the best in an earlier run, only it is tried at first.
  // `share`: time that trials may cost, in millionths of the time of all calls.
  explicit Learner(std::size_t arms, std::size_t known = 0, std::uint32_t share = kDefaultShare);

  // The next leg. `ready`: a bit for each program that can be run now.
  Leg next(std::uint32_t ready);
  void heard(const Leg& leg, const Times& times);
  // This program cannot be run.
  void exclude(std::uint32_t arm);

  std::uint32_t best() const { return best_; }
  std::uint64_t best_ns() const { return best_ns_; }
  // Of a program under the present load, or the last one without a crowd; 0: not known.
  std::uint64_t time_of(std::uint32_t arm) const { return arms_[arm].time(); }
  // Whether the race under the present load is over; there may be duels.
  bool settled() const { return settled_; }
  bool crowded() const { return crowded_; }
  // The best programs of all loads that are remembered, that of the present one first.
  std::vector<std::uint32_t> lessons() const;
  std::uint64_t calls() const { return calls_; }
  // How often another load was noticed.
  std::uint32_t changes() const { return changes_; }
  // What trials have cost, and the time of all calls.
  std::uint64_t spent_ns() const { return spent_; }
  std::uint64_t total_ns() const { return total_; }

 private:
  // A program is out of the race if it is so many per cent slower than the best after each round.
  static constexpr std::array<std::uint64_t, 5> kOut = {60, 30, 15, 8, 4};

  struct Arm {
    bool excluded = false;
    bool out = false;  // of the race
    std::uint32_t looks = 0;
    std::array<std::uint64_t, kOut.size()> seen = {};  // in ascending order
    void add(std::uint64_t ns);
    // The median, the lower one of two: a look may have met a stop. 0: none.
    std::uint64_t time() const { return looks == 0 ? 0 : seen[(looks - 1) / 2]; }
  };
  // What was found under a load that is over.
  struct Load {
    std::vector<Arm> arms;
    std::uint32_t best = 0;
  };
  // Of the program in force with the first of `rivals_`. Times are those of all calls, with those that were stopped.
  struct Duel {
    std::uint32_t calls = 0;  // of a leg
    std::uint32_t pairs = 0;
    std::int32_t points = 0;  // of the rival
    std::uint64_t own = 0;    // ns of all legs
    std::uint64_t others = 0;
    std::uint64_t cost = 0;
    bool peeked = false;
  };

  bool may_spend(std::uint64_t ns) const;
  std::uint32_t period() const;
  std::uint32_t timed_calls() const;
  std::uint64_t promise(std::uint32_t arm) const;
  Leg leg(std::uint32_t arm, std::uint32_t calls, bool timed);
  Leg watched();
  Leg next_in_race(std::uint32_t ready);
  Leg next_in_duel(std::uint32_t ready);
  void race(const Leg& leg, const Times& times);
  void end_round();
  void watch(const Times& times);
  bool meets_crowd(bool stopped);
  void change_load(std::uint64_t ns);
  void enter_crowd(std::uint64_t mean);
  void leave_crowd();
  std::uint64_t duel_overhead() const;
  void watch_crowd(const Times& times);
  void challenge();
  void duel(const Leg& leg, const Times& times);
  void end_duel(bool won);
  void lead(std::uint32_t arm);

  std::uint32_t share_;
  std::vector<Arm> arms_;
  std::vector<Load> loads_;  // the latest last
  std::uint32_t best_ = 0;
  std::uint64_t best_ns_ = 0;      // its usual time, or in a crowd its mean
  std::uint64_t exchange_ns_ = 0;  // as long as exchanges take lately
  std::uint64_t between_ns_ = 0;
  bool settled_ = false;
  std::uint32_t round_ = 0;
  std::uint32_t strange_ = 0;  // looks in a row that differ from what is known
  bool rested_ = false;        // the last leg was not timed

  bool crowded_ = false;
  std::uint32_t stops_ = 0;      // grows with legs that were stopped, and shrinks with others
  std::uint32_t calm_best_ = 0;  // as it was before the crowd
  std::uint64_t calm_ns_ = 0;
  std::uint32_t crowd_best_ = kMostArms;  // that has won a duel in a crowd last; kMostArms: none
  std::vector<std::uint64_t>
      crowd_times_;  // in the last crowd, in thousandths of the program that was in force; 0: not known

  std::vector<std::uint32_t> rivals_;  // with whom the program in force has no duel yet, the next one first
  Duel duel_;
  std::uint64_t own_ns_ = 0;     // the mean of the leg before, if it was of the program in force
  std::uint64_t next_pair_ = 0;  // the number of the call from which a rival has its next leg, if there is no crowd

  std::uint64_t calls_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t spent_ = 0;
  std::uint32_t changes_ = 0;
};

}  // namespace gc3::select
