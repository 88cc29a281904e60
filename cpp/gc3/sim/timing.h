// The parameters of a run besides the machine: how a protocol moves data, how a call is cut, when ranks start.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "gc3/ir/program.h"
#include "gc3/sim/machine.h"

namespace gc3::sim {

// How a protocol moves data on a machine. A message fills one slot and travels in slices. It is what one instruction
// moves in one tile, unless instructions are split.
struct ProtocolTiming {
  std::uint64_t slot_bytes = 0;       // data that a slot holds
  std::uint32_t slots = 1;            // per connection
  std::uint32_t slices = 1;           // per message
  std::uint64_t min_slice_bytes = 1;  // a short message has fewer
  bool cut_through = false;      // the receiver may start with the first line (LL, LL128), or must have the whole slice
  std::uint64_t line_bytes = 0;  // what a threadblock moves at a time, with cut-through
  double op_s = 0;               // of every slice of every instruction that moves data
  // Messages of at least this many bytes are not copied into a slot. The sender tells the address, and the receiver
  // reads the data there at this rate, and then processes it. 0: no message is lent. The second number is for messages
  // that the receiver reduces or sends on.
  std::uint64_t lend_bytes = 0;
  double lend_bytes_per_s = 0;
  std::uint64_t lend_combined_bytes = 0;
  // Messages of at least this many bytes are sent by rendezvous, as in MPI: the sender asks, the receiver answers once
  // it has reached the receive, and then the data is sent. Both ends also handle these two messages. 0: all are sent at
  // once.
  std::uint64_t rendezvous_bytes = 0;
  // Whether tiles have the length of a slot whatever the number of chunks per instruction: then an instruction of
  // several chunks sends messages of as many as a slot holds, as in MSCCL. Otherwise tiles are so short that the most
  // chunks of any instruction fit a slot, as in GC3's runtime.
  bool split = false;
  std::array<double, ir::kOpcodeCount> bytes_per_s{};  // of one threadblock, per opcode; that of nop is unused
  // What it reads and writes in its rank's memory, in bytes for each of data, per opcode.
  std::array<double, ir::kOpcodeCount> memory_bytes{};

  bool lends_any() const { return lend_bytes != 0 || lend_combined_bytes != 0; }
  bool lends(std::uint64_t bytes, bool combined) const {
    const std::uint64_t least = combined ? lend_combined_bytes : lend_bytes;
    return least != 0 && bytes >= least;
  }
};

// The part of the call that affects times.
struct Call {
  std::uint64_t chunk_bytes = 0;  // nominal: the size of the longest chunk
  std::uint64_t elem_bytes = 4;
  // Of a v-form: the bytes of every chunk that an instruction moves, from first[instruction] on. None: all nominal.
  std::vector<std::uint32_t> first = {};
  std::vector<std::uint64_t> lengths = {};
  // The bytes that each rank copies before its threadblocks run, at the rate of opcode `copy`; none: no rank copies
  // any.
  std::vector<std::uint64_t> copied = {};
  // Of a program of named tensors: it runs in one tile, and its operations take these times, by application.
  bool whole = false;
  std::vector<Time> applied = {};
};
// A call whose blocks differ in length: all counts, in elements, in the order of model::Collective::v_count. An error
// if the program does not serve such calls.
Result<Call> v_call(const ir::Program& program, const std::vector<std::uint64_t>& counts, std::uint64_t elem_bytes);
// A call of a program of named tensors: the elements of a chunk of each length (ir::Compute), and the seconds of each
// application.
Result<Call> tensor_call(const ir::Program& program, const std::vector<std::uint64_t>& counts, std::uint64_t elem_bytes,
                         const std::vector<double>& applied_s);

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

struct Piece {
  std::uint32_t bytes = 0;
  bool ends_message = true;
};

// How the data that an instruction moves in one tile is cut: into messages of equal length and a last one, and these
// into slices of equal length and a last one.
struct MessageCut {
  std::uint32_t slices = 1;       // of all messages together
  std::uint32_t slice_bytes = 0;  // of all messages but the last
  std::uint32_t end_bytes = 0;    // of the last slice of each of them
  std::uint32_t per_message = 0;  // slices of each of them; 0: there is only the last message
  std::uint32_t last_slice_bytes = 0;
  std::uint32_t last_bytes = 0;  // of the last slice of all

  Piece slice(std::uint32_t number) const {
    if (number + 1 == slices) return {last_bytes, true};
    if (per_message == 0) return {last_slice_bytes, false};
    const std::uint32_t last_message = (slices - 1) / per_message * per_message;
    if (number >= last_message) return {last_slice_bytes, false};
    return (number + 1) % per_message == 0 ? Piece{end_bytes, true} : Piece{slice_bytes, false};
  }
};

// A call cut into tiles, as in the runtime: `tile` bytes of every chunk at a time.
struct Tiles {
  std::uint64_t count = 0;
  std::uint64_t bytes = 0;       // of a chunk in every tile but the last
  std::uint64_t rest = 0;        // of a chunk in the last tile
  std::vector<MessageCut> full;  // by chunks per instruction
  std::vector<MessageCut> last;  // the same in the last tile
  const MessageCut& message(std::uint64_t tile, std::uint32_t chunks) const {
    return tile + 1 == count ? last[chunks] : full[chunks];
  }
  std::uint64_t chunk_bytes(std::uint64_t tile) const { return tile + 1 == count ? rest : bytes; }
};
MessageCut cut_message(std::uint64_t bytes, const ProtocolTiming& protocol);
Tiles cut(const Call& call, const ProtocolTiming& protocol, std::uint32_t max_count);

// Refuse numbers out of range.
Status check(const ProtocolTiming& protocol);
Status check(const Start& start, std::uint64_t chunk_bytes, std::uint32_t ranks);
Status check(const Options& options, const Call& call, std::uint32_t ranks);

}  // namespace gc3::sim
