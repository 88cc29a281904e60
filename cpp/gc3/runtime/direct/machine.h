// Executes the threadblocks of some ranks, on one thread: each is a state machine that runs until it has to wait.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "gc3/runtime/interp/one_sided.h"

namespace gc3::direct {

// How far a move has come.
struct Position {
  std::uint32_t chunk = 0;
  std::uint64_t offset = 0;  // bytes of the chunk
};

enum class Moved : std::uint8_t { nothing, part, all };

// What a step of a move does with memory.
class Mover {
 public:
  // Moves on from `at`. Less than all only where packets are missing. `call`: which call of the rank it is, from 1 on.
  virtual Moved move(const Step& step, std::uint64_t call, Position& at) = 0;
  // Makes visible what has been moved, before a signal.
  virtual void settle() {}

 protected:
  ~Mover() = default;
};

class Machine {
 public:
  // The ranks [first, last).
  Machine(const Decoded& program, Counters counters, std::uint32_t first, std::uint32_t last);

  // Gives the signals with which threadblocks begin, of the call that begins next. For who knows by other means that
  // all ranks have begun it: then nobody waits for these.
  void enter();
  // Begins with `calls` calls of each rank. The functions, if there are any: a rank begins a call, and has ended it;
  // the first is number 0.
  using Note = std::function<void(std::uint32_t rank, std::uint32_t call)>;
  void begin(std::uint32_t calls, Mover& mover, const Note& begins, const Note& ended);
  bool finished() const { return live_ == 0; }
  // Advances each threadblock; where none can advance, asynchronous moves. `progress` is called after each that
  // advanced. False: none did.
  bool sweep(const std::function<void()>& progress);
  // The ranks whose signals can end the wait after a sweep in which none advanced, in the form of core::Bells.
  std::uint32_t awaited() const;
  // Adds what each threadblock waits for.
  void report(Diagnostic& diagnostic) const;

 private:
  struct Task {
    std::uint32_t tb = 0;  // in the program
    std::uint32_t step = 0;
    std::uint32_t object = 0;  // of the step, the next one
    std::uint64_t ticket = 0;  // what the counter of a wait must reach; 0: not known yet
    Position position;
  };
  struct Rank {
    std::vector<Task> tasks;
    std::uint32_t live = 0;  // tasks
    std::uint32_t call = 0;
    std::vector<std::uint32_t> ports;  // channels from it that have a proxy
  };
  // A move or a signal that the proxy of a channel will execute.
  struct Posted {
    const Step* step;
    bool signal;
  };

  void start(Rank& rank, std::uint32_t number);
  bool end(Rank& rank, std::uint32_t number);
  bool advance(Rank& rank, std::uint32_t number, Task& task);
  Moved execute(const Step& step, std::uint64_t call, Task& task);
  bool object(const Step& step, std::uint32_t k, Task& task);
  void signal(std::uint32_t channel);
  bool run_posted(const Rank& rank, std::uint32_t number);
  std::string awaited(const Step& step, const Task& task) const;

  const Decoded& decoded_;
  const Program& program_;
  Counters counters_;
  std::uint32_t first_;
  std::vector<Rank> ranks_;
  std::vector<std::uint32_t> entered_;      // by threadblock of the program: steps of enter(); 0: not for the next call
  std::vector<std::deque<Posted>> posted_;  // by channel
  Mover* mover_ = nullptr;
  Note begins_;
  Note ended_;
  std::uint32_t calls_ = 0;
  std::uint32_t live_ = 0;  // ranks
};

}  // namespace gc3::direct
