// The shared memory through which messages of one rank to another go: a ring of cells, written by the sender and read
// by the receiver, and slots that say where large messages lie in the sender's memory.
//
// A cell's stamp is written last. It counts the cells of the pipe without restarting, so the receiver looks at one
// cache line to find a new message, and a small message is in that line. Cells are read in order.
//
// A message longer than the eager limit stays where it is. Its slot has the address, and a cell offers it. The receiver
// takes the slot, reads the message from the sender's memory, and marks the slot as done. The sender may withdraw what
// has not been taken. If the receiver cannot read there, or all slots were in use, it asks for the message by a cell of
// the pipe in the other direction, and gets it in cells.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

#include "gc3/runtime/core/shared_memory.h"

namespace gc3::p2p {

inline constexpr std::uint64_t kCells = 32;
inline constexpr std::uint64_t kPayload =
    8192 + 32;  // a cell has an odd number of cache lines: heads in different sets
inline constexpr std::uint32_t kSlots = 128;
inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

inline std::atomic_ref<std::uint64_t> word(std::uint64_t& of) { return std::atomic_ref(of); }

enum class CellKind : std::uint8_t {
  message = 1,  // the beginning of a message
  more,         // the next part of it, in the cells that follow
  offer,        // a message in the sender's memory
  want,         // from the receiver: it wants an offered message in cells, or with `bytes` 0 not at all
  part,         // the next part of a message that was wanted
};

struct CellHead {
  std::int32_t tag = 0;
  std::uint32_t slot = 0;    // of an offer; kNoSlot: it has none
  std::uint64_t bytes = 0;   // of the whole message
  std::uint64_t serial = 0;  // of an offer, what it is wanted by, and its parts
};

struct alignas(64) Cell {
  std::uint64_t stamp;
  CellHead head;
  std::uint8_t payload[kPayload];
};
static_assert(sizeof(CellHead) == 24 && sizeof(Cell) % 128 == 64);

enum class SlotState : std::uint8_t { free, open, taken, done };

// Written by the sender while it is free, and only its word by the receiver.
struct alignas(64) Slot {
  std::uint64_t word;
  std::uint64_t address;  // in the sender's process, or kShared and an offset in the window of the job

  static constexpr std::uint64_t kShared = std::uint64_t{1} << 63U;
  static constexpr std::uint64_t pack(std::uint64_t serial, SlotState state) {
    return serial << 2U | static_cast<std::uint64_t>(state);
  }
};

struct Pipe {
  // The receiver's: how many cells it is through with, and how much of what was sent unasked it has given to its
  // caller.
  alignas(64) std::uint64_t head;
  std::uint64_t taken;
  Slot slots[kSlots];
  Cell cells[kCells];
};

// The sender's end.
class PipeSender {
 public:
  PipeSender() = default;
  explicit PipeSender(core::Mapping memory) : memory_(std::move(memory)) {}
  bool is_open() const { return memory_.data() != nullptr; }

  // Whether so many cells are free. acquire: the receiver has read them.
  bool has_room(std::uint64_t cells) {
    if (next_ + cells - head_ <= kCells) return true;
    head_ = word(pipe().head).load(std::memory_order_acquire);
    return next_ + cells - head_ <= kCells;
  }
  void put(CellKind kind, const CellHead& head, const std::uint8_t* data, std::uint64_t bytes) {
    Cell& cell = pipe().cells[next_ % kCells];
    cell.head = head;
    if (bytes != 0) std::memcpy(cell.payload, data, bytes);
    // release: whoever sees the stamp sees the cell.
    word(cell.stamp).store(++next_ << 8U | static_cast<std::uint64_t>(kind), std::memory_order_release);
  }
  // Whether so much more may be sent unasked, of which the receiver keeps at most `bound`. relaxed: no data follows
  // from the count.
  bool afford(std::uint64_t cost, std::uint64_t bound) {
    if (spent_ + cost - taken_ > bound) taken_ = word(pipe().taken).load(std::memory_order_relaxed);
    return spent_ + cost - taken_ <= bound;
  }
  void spend(std::uint64_t cost) { spent_ += cost; }
  Slot& slot(std::uint32_t index) { return pipe().slots[index]; }

 private:
  Pipe& pipe() const { return *reinterpret_cast<Pipe*>(memory_.data()); }

  core::Mapping memory_;
  std::uint64_t next_ = 0;
  std::uint64_t head_ = 0;  // as last seen
  std::uint64_t spent_ = 0;
  std::uint64_t taken_ = 0;  // as last seen
};

// The receiver's end.
class PipeReceiver {
 public:
  PipeReceiver() = default;
  explicit PipeReceiver(core::Mapping memory) : memory_(std::move(memory)) {}
  bool is_open() const { return memory_.data() != nullptr; }

  // The next cell, if it has arrived, and its kind. acquire: with its contents.
  const Cell* look(CellKind& kind) {
    Cell& cell = pipe().cells[next_ % kCells];
    const std::uint64_t stamp = word(cell.stamp).load(std::memory_order_acquire);
    if (stamp >> 8U != next_ + 1) return nullptr;
    kind = static_cast<CellKind>(stamp & 0xffU);
    return &cell;
  }
  // This end is through with that cell, and has given so much to its caller.
  void next() { ++next_; }
  void take(std::uint64_t cost) { taken_ += cost; }
  // Whether the sender should be told by now, even if more cells have arrived.
  bool owes() const { return next_ - told_ >= kCells / 4; }
  // Tells the sender: it may write those cells again. Not for each cell, because a sender that waits for room reads
  // this line all the time. release: after all reads of the cells.
  void tell() {
    if (told_taken_ != taken_) word(pipe().taken).store(told_taken_ = taken_, std::memory_order_relaxed);
    if (told_ != next_) word(pipe().head).store(told_ = next_, std::memory_order_release);
  }
  Slot& slot(std::uint32_t index) { return pipe().slots[index]; }

 private:
  Pipe& pipe() const { return *reinterpret_cast<Pipe*>(memory_.data()); }

  core::Mapping memory_;
  std::uint64_t next_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;  // of next_
  std::uint64_t told_taken_ = 0;
};

}  // namespace gc3::p2p
