// Learns which of a few programs is the fastest for calls of one class, while these calls run.
//
// A learner knows neither programs nor clocks. It says which program the next calls run, and is told how long they
// took. Every rank has one, and all of them are told the same numbers at the same call, so all of them say the same:
// there is nothing else to agree on. So there are only integers here, and no time of day.
//
// Calls come in legs: so many calls of one program. After a timed leg the ranks exchange its times before the next
// call. The others are free of cost. There is one rule. In a round the program in force and every one that may be
// faster have a timed leg each, and each is compared with the program in force in the same round, since one moment
// differs from another by more than programs do. What counts is the average of all rounds; a program that is slower by
// kOut is out, and one that is faster by a few per cent is in force from then on. The first rounds follow each other,
// and their legs double; later ones come at growing intervals. If the program in force takes another time than before,
// all of this begins again.
//
// Where other threads want the same cores, a rank is stopped for milliseconds in the midst of a call. Few calls are
// hit, but these may take most of the time, and a short leg seldom shows it. So the time of a call is the usual one and
// its part of the stops, as a long average that begins with that of the program in force.
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
  static constexpr std::size_t kMostArms = 16;
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
  // There is another program, which can be run now. The next rounds follow each other again.
  void add();

  std::uint32_t best() const { return best_; }
  std::uint64_t best_ns() const { return time_of(best_); }
  // Of a program under the present load; 0: not known.
  std::uint64_t time_of(std::uint32_t arm) const;
  // Whether the first rounds under the present load are over.
  bool settled() const { return left() < 2 || round_ >= kRounds; }
  std::uint64_t calls() const { return calls_; }
  // How often another load was noticed.
  std::uint32_t changes() const { return changes_; }
  // What trials have cost, and the time of all calls.
  std::uint64_t spent_ns() const { return spent_; }
  std::uint64_t total_ns() const { return total_; }

 private:
  static constexpr std::uint32_t kRounds = 5;  // that follow each other
  // A program is out if it is so many per cent slower than the one in force, by the number of its rounds.
  static constexpr std::array<std::uint64_t, 3> kOut = {100, 60, 30};

  struct Arm {
    bool excluded = false;
    bool out = false;
    std::uint32_t rounds = 0;  // that it was in
    std::uint32_t last = 0;    // of them
    std::uint64_t ratio = 0;   // of its usual time to that of the program in force, in kOne
    std::uint64_t calls = 0;   // of its legs
    std::uint64_t stop = 0;    // ns of them in which the rank was stopped
    std::uint64_t took = 0;    // ns of all of them, of so many calls of the program in force, and what is beyond
    std::uint64_t instead = 0;
    std::uint64_t cost = 0;
  };

  bool races(std::uint32_t arm) const { return !arms_[arm].excluded && !arms_[arm].out; }
  std::size_t left() const;
  bool may_spend(std::uint64_t ns) const;
  std::uint32_t period() const;
  std::uint32_t timed_calls() const;
  std::uint32_t leg_calls(std::uint32_t rounds) const;
  std::uint64_t stops_calls() const;
  Leg leg(std::uint32_t arm, std::uint32_t calls, bool timed);
  Leg watched();
  void watch(const Leg& leg, const Times& times);
  void begin();
  bool complete() const;
  void end_round();
  void lead(std::uint32_t arm);

  std::uint32_t share_;
  std::vector<Arm> arms_;
  std::uint32_t best_ = 0;
  std::uint64_t usual_ = 0;  // of the program in force
  std::uint64_t stop_ = 0;   // ns of a call of it, on average, in which the rank was stopped
  std::uint64_t own_ = 0;    // the same in this round; 0: it has not begun
  bool opens_ = false;       // the leg with which it begins runs
  bool stopped_ = false;     // stops take so much time that they count
  std::uint64_t exchange_ns_ = 0;
  std::uint64_t between_ns_ = 0;
  std::uint32_t round_ = 0;
  std::uint32_t more_ = 0;        // rounds that follow each other although the first ones are over
  std::uint64_t next_round_ = 0;  // the number of the call from which it may begin
  std::uint64_t since_ = 0;       // and the number of that with which the present load began
  std::uint32_t strange_ = 0;     // looks in a row that differ from what is known
  bool rested_ = false;           // the last leg was not timed

  std::uint64_t calls_ = 0;
  std::uint64_t total_ = 0;
  std::uint64_t spent_ = 0;
  std::uint32_t changes_ = 0;
};

}  // namespace gc3::select
