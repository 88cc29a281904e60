// The parameters of a run besides the machine: how a protocol moves data, how a call is cut, when ranks start.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gc3/ir/program.h"
#include "gc3/sim/machine.h"

namespace gc3::sim {

// How a protocol moves data on a machine. A message is the data that one instruction moves in one tile; it fills one
// slot and travels in slices.
struct ProtocolTiming {
  std::uint64_t slot_bytes = 0;       // data that a slot holds
  std::uint32_t slots = 1;            // per connection
  std::uint32_t slices = 1;           // per message
  std::uint64_t min_slice_bytes = 1;  // a short message has fewer
  bool cut_through = false;      // the receiver may start with the first line (LL, LL128), or must have the whole slice
  std::uint64_t line_bytes = 0;  // what a threadblock moves at a time, with cut-through
  double op_s = 0;               // of every slice of every instruction that moves data
  // Messages of at least this many bytes are not copied into a slot. The sender tells the address, and the receiver
  // reads the data there at this rate, and then processes it. 0: no message is lent.
  std::uint64_t lend_bytes = 0;
  double lend_bytes_per_s = 0;
  std::array<double, ir::kOpcodeCount> bytes_per_s{};  // of one threadblock, per opcode; that of nop is unused
};

// The part of the call that affects times.
struct Call {
  std::uint64_t chunk_bytes = 0;  // nominal: the size of the longest chunk
  std::uint64_t elem_bytes = 4;
  // Of a v-form: the bytes of every chunk that an instruction moves, from first[instruction] on. None: all nominal.
  std::vector<std::uint32_t> first = {};
  std::vector<std::uint64_t> lengths = {};
};
// A call whose blocks differ in length: all counts, in elements, in the order of model::Collective::v_count. An error
// if the program does not serve such calls.
Result<Call> v_call(const ir::Program& program, const std::vector<std::uint64_t>& counts, std::uint64_t elem_bytes);

struct Start {
  double launch_s = 0;
  std::vector<double> delay_s;   // per rank, in addition; empty: none
  std::vector<double> slowdown;  // per rank: the factor by which its threadblocks are slower; empty: 1
};

enum class Sharing : std::uint8_t { serial, max_min };

struct Options {
  ProtocolTiming protocol;
  Start start;
  Sharing sharing = Sharing::serial;
  bool record = false;                  // record each operation, for `explain`
  std::uint64_t max_records = 1 << 24;  // more records are an error; a record takes 72 bytes
};

// How a message of this many chunks is cut.
struct MessageCut {
  std::uint32_t slices = 1;
  std::uint32_t slice_bytes = 0;
  std::uint32_t last_bytes = 0;
  std::uint32_t total_bytes() const { return slice_bytes * (slices - 1) + last_bytes; }
};

// A call cut into tiles, as in the runtime: `tile` bytes of every chunk at a time.
struct Tiles {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;       // of a chunk in every tile but the last
  std::vector<MessageCut> full;  // by chunks per message
  std::vector<MessageCut> last;  // the same in the last tile
  const MessageCut& message(std::uint64_t tile, std::uint32_t chunks) const {
    return tile + 1 == count ? last[chunks] : full[chunks];
  }
};
MessageCut cut_message(std::uint64_t bytes, const ProtocolTiming& protocol);
Tiles cut(const Call& call, const ProtocolTiming& protocol, std::uint32_t max_count);

// Refuses numbers out of range.
Status check(const Options& options, const Call& call, std::uint32_t ranks);

}  // namespace gc3::sim
