// Learns while calls run which of a few programs is the best for calls of one kind and about one size.
//
// All ranks run the same program in each call without asking each other: which one depends only on the number of the
// call in its class, and on what the ranks have exchanged in earlier calls of the class (select/learner.h). An exchange
// is a call like others, at the same place in the order of calls on all ranks, so ranks may be any number of calls
// apart. What a program needs before its first run (compilation, proof, preparation) is done by a thread beside the
// calls; the exchange says when all ranks have it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/comm/generation.h"
#include "gc3/runtime/core/waiting/progress.h"
#include "gc3/runtime/cpu/communicator.h"
#include "gc3/runtime/select/learner.h"
#include "gc3/runtime/select/selection.h"

namespace gc3::comm {

// off: never; rows: for calls of rows that say so; on: for all but rows that say no; exact: as on, but only with
// programs that add in the order of the one in the table.
enum class AdaptMode : std::uint8_t { off, rows, on, exact };
Result<AdaptMode> parse_adapt_mode(const std::string& text);

struct AdaptOptions {
  AdaptMode mode = AdaptMode::off;
  std::uint32_t share = select::Learner::kDefaultShare;  // of the time, in millionths, that trials may cost
  select::Selection learned = {};                        // rows that earlier runs have learned: tried first
  select::Selection candidates = {};                     // rows with further programs, beside those of the table
  Generation generation = {};                            // of further programs while calls run
  bool differs = false;                                  // the ranks have wished different things, so that it is off

  // Equal for the same wishes with the same tables; 0: none.
  std::uint64_t wish(const select::Selection& table) const;
};

class Adaptation {
 public:
  using Ready = std::shared_ptr<cpu::ProcessProgram>;
  // Makes the program of a recipe for a call, proven. Called by any thread.
  using Make = std::function<Result<ir::ClassProgram>(const select::Recipe& recipe, const select::CallShape& shape)>;
  using Run = std::function<Status(cpu::ProcessProgram& program)>;

  using Turn = cpu::Membership::Turn;
  // A class of calls.
  struct Class {
    struct Arm {
      std::shared_ptr<const select::Recipe> recipe;
      Ready program = nullptr;
      std::int64_t cost_ns = 0;  // processor time that making it took here; 0: not known
    };
    // A program that is generated: an arm once all ranks have it.
    struct Candidate {
      bool begun = false;
      Arm arm = {};
      std::string text = {};
      std::string why = {};  // this rank cannot make it
    };

    std::uint32_t free = 0;                  // calls that are left of a leg that is not timed
    std::uint32_t left = 0;                  // of one that is
    cpu::ProcessProgram* program = nullptr;  // of the leg
    select::Learner::Leg leg = {};
    std::uint64_t calls = 0;  // since `since`
    std::int64_t since = 0;   // the end of the last exchange
    // Of the timed leg: the last bits of the clock when the last calls began, and their ns; the ns of all of them.
    std::array<std::uint32_t, 2> begun{};
    std::array<std::uint32_t, 2> took{};
    std::uint64_t sum = 0;
    std::uint32_t exchange_ns = 0;  // of this rank's last exchange, and what was concluded from it

    select::CallShape shape;
    bool v = false;
    std::vector<Arm> arms;
    select::Learner learner{1};
    std::uint32_t open = 1;    // a bit for each program that all ranks have opened
    std::uint32_t ready = 1;   // and for each that all ranks have made
    std::uint32_t failed = 0;  // and for each that some rank cannot make
    bool making = false;       // the thread makes the programs
    // What this rank has made, and what it cannot make. The exchange orders them for other ranks; here the lock does.
    std::uint32_t own_ready = 1;
    std::uint32_t own_failed = 0;
    std::optional<std::vector<std::uint64_t>> order;  // in which the row's program adds, known to the thread

    std::string unmade;                                        // for what of these calls no row was made
    std::size_t listed = 0;                                    // arms that were not generated
    std::uint32_t generated = 0;                               // candidates so far
    std::optional<Candidate> candidate;                        // its bits above are those of the arm that it may become
    std::vector<std::pair<std::string, std::string>> refused;  // candidates, and why they are no arms
  };

  Adaptation(cpu::Communicator& core, AdaptOptions options, Make make);
  ~Adaptation();
  Adaptation(const Adaptation&) = delete;
  Adaptation& operator=(const Adaptation&) = delete;

  const AdaptOptions& options() const { return options_; }
  // The class of a call that `row` of the table serves with `ready`; null: nothing is learned about it. `v`: a call of
  // the v-form, or of many arrays. `table` has the other rows.
  Class* find(const select::CallShape& shape, bool v, const select::Row& row, const Ready& ready,
              const select::Selection& table);
  // Within a call: runs the next one of the class by the program that is its turn.
  template <class Call>
  Status run(const Turn& turn, Class& of, const core::Interrupted& interrupted, Call call) {
    if (of.free == 0 && of.left == 0) GC3_CHECK(next(turn, of, interrupted));
    // One that was invalid on this rank has not been made, and is not counted.
    if (of.free != 0) {
      GC3_CHECK(call(*of.program));
      --of.free;
      return {};
    }
    const std::int64_t begin = now();
    GC3_CHECK(call(*of.program));
    note(of, begin, now() - begin);
    return {};
  }

  // What is known of the calls of a row that are like this one, in a line; empty: nothing is learned.
  std::string describe(const select::CallShape& shape, const select::Row& row) const;
  struct Learned {
    select::CallShape shape;     // of one of the calls
    std::string program;         // the text of its recipe
    std::uint64_t ns = 0;        // of a call
    std::uint64_t table_ns = 0;  // of a call with the program of the table; 0: not known
    std::uint64_t calls = 0;
  };
  // Of the classes of calls of equal blocks whose program is known, the best programs.
  std::vector<Learned> learned() const;
  // Waits for the thread.
  void close();

 private:
  using Key = std::tuple<const select::Recipe*, std::uint32_t, std::uint32_t, int, int, bool, bool>;
  static Key key_of(const select::CallShape& shape, bool v, const select::Row& row);
  static std::int64_t now();
  // Begins the next leg.
  Status next(const Turn& turn, Class& of, const core::Interrupted& interrupted);
  static void note(Class& of, std::int64_t begin, std::int64_t ns);
  Status meet(const Turn& turn, Class& of, const core::Interrupted& interrupted, std::int64_t begin);
  Status open(const Turn& turn, Class& of, std::uint32_t arm, const core::Interrupted& interrupted);
  bool learns(const select::Row& row) const;
  // generation.cc
  static std::int64_t processor_ns();
  static std::string unmade(const Class& of);
  void generate(Class& of, bool decided, bool refused);
  void begin(Class& of);
  Status make_candidate(Class& of, const std::string& base, const std::vector<std::string>& tried,
                        Class::Candidate& made);
  static std::string describe_generated(const Class& of);
  static std::string time_text(std::uint64_t ns);
  void make_arms(Class& of, const select::Selection& table);
  void compile(Class& of);
  Result<ir::ClassProgram> make_program(Class& of, const select::Recipe& recipe);
  Result<Ready> make_ready(Class& of, const select::Recipe& recipe);

  cpu::Communicator& core_;
  AdaptOptions options_;
  Make make_;
  mutable std::mutex mutex_;  // of the classes, but for what only the thread that runs calls uses
  std::map<Key, std::unique_ptr<Class>> classes_;
  std::atomic<bool> closing_ = false;
  core::Progress maker_;  // the last member, because its work uses the others
};

}  // namespace gc3::comm
