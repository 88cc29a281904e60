// Runs some calls of a direct program symbolically, one after the other on each rank, and collects what happens before
// what, the accesses that have to be ordered, and the results.
//
// Every threadblock runs until it has to wait. A wait whose condition has become true stays true: counters only grow,
// each is taken by one threadblock, and the packets of a call stay. So all runs end in the same state: if this one ends
// with waiting threadblocks, every run does.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gc3/base/findings.h"
#include "gc3/ir/direct/places.h"
#include "gc3/ir/direct/program.h"
#include "gc3/verify/direct/counters.h"
#include "gc3/verify/direct/order.h"
#include "gc3/verify/direct/values.h"

namespace gc3::verify::direct {

class Execution {
 public:
  Execution(const ir::direct::Program& program, std::uint32_t calls, std::vector<Weights> weights, Counters counters);

  // False, with the reason in `findings`, if threadblocks wait for ever.
  bool run(Findings& findings);
  // Reports accesses that nothing orders.
  void report_races(Findings& findings);
  // Reports wrong outputs and reads of what nothing has written.
  void report_values(Findings& findings);
  std::uint64_t transfers() const { return transfers_; }

 private:
  using Operand = ir::direct::Operand;
  using Step = ir::direct::Step;
  using Value = Values::Value;

  struct Block {  // a threadblock that runs
    std::uint32_t rank = 0;
    std::uint32_t tb = 0;
    std::uint32_t call = 0;
    std::uint32_t step = 0;
    std::uint32_t chunk = 0;  // of a move: those before it are done
    std::uint32_t phase = 0;
    bool arrived = false;          // at a barrier
    bool ended = false;            // its steps of this call
    Event synced = kNone;          // everything before it is done by all threads
    std::vector<Event> since;      // the events after it
    std::vector<Event> of_thread;  // per thread that signals or waits: its last event since
  };
  struct Rank {
    std::uint32_t ended = 0;  // threadblocks that have ended the call
    std::uint32_t call = 0;
  };
  struct Meeting {  // of a barrier
    std::uint64_t arrivals = 0;
    std::vector<Event> came;
    std::vector<Event> met;  // per generation
  };
  struct Access {  // to a place
    Event writer = kNone;
    bool by_caller = false;  // the code around the calls wrote it
    std::vector<Event> readers;
  };
  struct Packet {  // of one call
    Event writer = kNone;
    Value value = Values::kUnwritten;
    std::vector<Event> readers;
    std::vector<Event> rewriters;  // they store what is there
  };

  const Step& step_of(const Block& b) const { return p_.steps[p_.threadblocks[b.tb].first_step + b.step]; }
  Made made(const Block& b, bool proxy = false) const { return {b.call, b.rank, b.tb, b.step, b.phase, proxy}; }

  // Syncs of a threadblock over all calls.
  static std::uint64_t phase_of(const Block& b) { return std::uint64_t{b.call} << 32U | b.phase; }

  void between_calls(std::uint32_t rank);
  bool advance(Block& block);
  bool execute(Block& block, const Step& step);
  void sync(Block& block);
  void synchronise(Block& block, const Step& step);
  bool take(Block& block, const Step& step, std::vector<Counter>& counters);
  void give(Block& block, const Step& step);
  bool meet(Block& block, const Step& step);
  bool move(Block& block, const Step& step);
  bool packets_there(const Block& block, const Step& step) const;
  Event thread_event(Block& block, std::uint32_t thread);
  Event proxy_event(const Block& block, std::uint32_t channel, std::uint32_t thread, Event told);
  void move_chunk(Block& block, const Step& step, Event event);
  // visit(rank) for each rank whose buffer it is.
  template <class Visit>
  void each(const Operand& o, Visit visit) const {
    if (!is_multicast(o.access)) {
      visit(o.owner);
      return;
    }
    for (const std::uint32_t member : p_.groups[o.owner].ranks) visit(member);
  }

  Value load(Event event, std::uint32_t rank, const Operand& o, std::uint32_t chunk, std::uint32_t call);
  void store(Event event, std::uint32_t rank, const Operand& o, std::uint32_t chunk, std::uint32_t call, Value value);
  void read(Event event, std::uint32_t place);
  void expect_stored(Event event, std::uint32_t place);
  bool expect_arrived(Event proxy, const Packet& packet, std::uint32_t number);
  // What the rank's caller has put into a place, when it is first looked at: few places of a large buffer may be.
  void make_input(std::uint32_t rank, std::uint32_t place, std::uint32_t call);
  void write(Event event, std::uint32_t place, bool by_caller);
  Packet& packet(std::uint32_t rank, std::uint32_t chunk, std::uint32_t call) {
    return packets_[call * packet_count_ + first_packet_[rank] + chunk];
  }
  const Packet& packet(std::uint32_t rank, std::uint32_t chunk, std::uint32_t call) const {
    return packets_[call * packet_count_ + first_packet_[rank] + chunk];
  }
  void check_packets();
  // That what was in a packet has been read before an event that overwrites it.
  void expect_packets(std::uint32_t rank, std::uint32_t chunk, const Packet& before, Event after);
  void expect_packet(std::uint32_t rank, std::uint32_t chunk, Event before, Event after, bool stored);

  void explain_waiting(Findings& findings) const;
  std::string waits_for(const Block& block, std::uint32_t& next) const;
  std::string describe(Event event, bool writes) const;
  std::string step_text(std::uint32_t rank, std::uint32_t tb, std::uint32_t step) const;
  // Packets are numbered after the places.
  std::uint32_t number_of_packet(std::uint32_t rank, std::uint32_t chunk) const {
    return static_cast<std::uint32_t>(places_.count() + first_packet_[rank] + chunk);
  }
  std::string name_of(std::uint32_t place) const;

  const ir::direct::Program& p_;
  std::uint32_t calls_;
  Counters counters_;
  Values values_;
  ir::direct::Places places_;
  Order order_;
  std::vector<Block> blocks_;
  std::vector<Rank> ranks_;
  std::vector<std::vector<Event>> boundaries_;  // per rank: the events of the code around the calls
  std::vector<Proxy> proxies_;                  // per channel
  std::vector<Meeting> meetings_;
  std::vector<Access> accesses_;  // per place
  std::vector<Value> held_;       // per place
  std::vector<std::size_t> first_packet_;
  std::size_t packet_count_ = 0;
  std::vector<Packet> packets_;
  std::uint64_t transfers_ = 0;

  struct Wrong {
    std::uint32_t rank;
    std::uint32_t index;
    std::uint32_t call;
    Value value;
  };
  std::vector<Wrong> wrong_;
  std::vector<Diagnostic> unwritten_;
  std::vector<Diagnostic> packet_races_;
};

}  // namespace gc3::verify::direct
