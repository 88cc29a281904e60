// The shared memory through which messages of one rank to another go: a ring of records, written by the sender and read
// by the receiver, and slots that say where large messages lie in the sender's memory.
//
// A record begins with a word that is written last and is not zero. Before the sender writes it, it clears the word of
// the record that will follow, so the receiver looks at one word to find a new message. Short messages lie side by
// side, several in one cache line.
//
// A message longer than the eager limit stays where it is. Its slot has the address, and a record offers it. The
// receiver takes the slot, reads the message from the sender's memory, and marks the slot as done. The sender may
// withdraw what has not been taken. Where copying is faster than reading, the receiver marks the slot as asked first: a
// sender that makes progress answers with records. If it does not begin in time, or does not go on, the receiver takes
// the slot back and reads the rest, and records that come later are passed over.
// If the receiver cannot read there, or all slots were in use, it asks for the message by a record of the pipe in the
// other direction, and gets it in records.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/expect_write.h"

namespace gc3::p2p {

inline constexpr std::uint64_t kPayload = 16384;  // of a message in one record, at most
inline constexpr std::uint32_t kSlots = 128;
inline constexpr std::uint32_t kNoSlot = ~std::uint32_t{0};

inline std::atomic_ref<std::uint64_t> word(std::uint64_t& of) { return std::atomic_ref(of); }

enum class RecordKind : std::uint8_t {
  none,
  skip,     // the next record is at the beginning of the ring
  message,  // a whole message; its tag and type are in the word, where the type has room
  first,    // a head, and the beginning of a message
  more,     // the next part of it, in the records that follow
  offer,    // a head: a message in the sender's memory
  want,     // a head, from the receiver: it wants an offered message in records, or with `bytes` 0 not at all
  part,     // a head, and the next part of a message that was wanted
  // Between hosts only.
  taken,  // a head: the receiver has given `bytes` of what was sent unasked to its caller
  gone,   // a head: the sender has withdrawn the message that was wanted
  bye,    // a head: nothing follows
};

struct MessageHead {
  std::int32_t tag = 0;
  std::uint32_t slot = 0;    // of an offer; kNoSlot: it has none
  std::uint64_t bytes = 0;   // of the whole message
  std::uint64_t serial = 0;  // of an offer, what it is wanted by, and its parts
  std::uint64_t type = 0;    // of Operation; as wide as the others, so that no byte of a record is undefined
};

// A record: its word, then so many bytes.
inline constexpr std::uint64_t kWord = sizeof(std::uint64_t);
inline constexpr std::uint64_t kMostExpected = 1024;  // bytes of the next one: a core awaits some 16 lines at once
inline constexpr std::uint64_t kMostInRecord = sizeof(MessageHead) + kPayload;
inline constexpr std::uint64_t length_of(std::uint64_t bytes) { return (kWord + bytes + 15) / 16 * 16; }

enum class SlotState : std::uint8_t { free, open, taken, asked, sending, done };

// Written by the sender while it is free, and only its word by the receiver.
struct alignas(64) Slot {
  std::uint64_t word;
  std::uint64_t address;  // in the sender's process, or kShared and an offset in the window of the job

  static constexpr std::uint64_t kShared = std::uint64_t{1} << 63U;
  static constexpr std::uint64_t pack(std::uint64_t serial, SlotState state) {
    return serial << 3U | static_cast<std::uint64_t>(state);
  }
};

// The word of a record. Five bits of it are the type of a `message`: no record has 2^19 bytes.
inline constexpr std::uint32_t kTypesInWord = 32;
inline constexpr std::uint64_t word_of(RecordKind kind, std::int32_t tag, std::uint64_t bytes, std::uint64_t type = 0) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(tag)) << 32U | type << 27U | bytes << 8U |
         static_cast<std::uint64_t>(kind);
}

struct PipeSize {
  static constexpr std::uint64_t kRing = std::uint64_t{1} << 19U;  // bytes, at most
  static constexpr std::uint64_t kInRecord = kMostInRecord;
};

template <class Size>
struct PipeMemory {
  // The receiver's: how many bytes of the ring it is through with, and how much of what was sent unasked it has given
  // to its caller.
  alignas(64) std::uint64_t head;
  std::uint64_t taken;
  Slot slots[kSlots];
  alignas(64) std::uint8_t ring[Size::kRing];  // or its first bytes, a power of two: what both ends were told

  // With a ring of so many bytes.
  static constexpr std::uint64_t bytes_with(std::uint64_t ring_bytes) {
    return sizeof(PipeMemory) - Size::kRing + ring_bytes;
  }
  // Positions count without restarting.
  std::uint8_t* at(std::uint64_t position, std::uint64_t ring_bytes) { return ring + (position & (ring_bytes - 1)); }
  std::uint64_t& word_at(std::uint64_t position, std::uint64_t ring_bytes) {
    return *reinterpret_cast<std::uint64_t*>(at(position, ring_bytes));
  }
};

// How the ends access the memory; weak_pipe_test.cc has another one.
struct DirectAccess {
  static std::uint64_t load(std::uint64_t& at, std::memory_order order) { return word(at).load(order); }
  static void store(std::uint64_t& at, std::uint64_t value, std::memory_order order) { word(at).store(value, order); }
  // relaxed.
  static bool exchange_if(std::uint64_t& at, std::uint64_t is, std::uint64_t value) {
    return word(at).compare_exchange_strong(is, value, std::memory_order_relaxed);
  }
  static void write(void* to, const void* from, std::uint64_t bytes) { copy_bytes(to, from, bytes); }
  static void expect_write(std::uint8_t* at, std::uint64_t bytes) { gc3::expect_write(at, bytes); }
  static void read(void* to, const void* from, std::uint64_t bytes) { copy_bytes(to, from, bytes); }
};

// The sender's end.
template <class Size, class Access>
class SenderEnd {
 public:
  SenderEnd() = default;
  explicit SenderEnd(std::uint8_t* memory, std::uint64_t ring_bytes = Size::kRing, Access access = {})
      : pipe_(reinterpret_cast<PipeMemory<Size>*>(memory)), ring_(ring_bytes), access_(access) {}
  bool is_open() const { return pipe_ != nullptr; }

  // Whether records of so many bytes in all fit. acquire: the receiver has read what they replace.
  bool has_room(std::uint64_t bytes) {
    if (next_ + bytes + kSlack - head_ <= ring_) return true;
    head_ = access_.load(pipe_->head, std::memory_order_acquire);
    return next_ + bytes + kSlack - head_ <= ring_;
  }
  void put(RecordKind kind, const MessageHead& head, const std::uint8_t* data = nullptr, std::uint64_t bytes = 0) {
    std::uint8_t* to = begin(sizeof head + bytes);
    access_.write(to, &head, sizeof head);
    if (bytes != 0) access_.write(to + sizeof head, data, bytes);
    publish(kind, 0, sizeof head + bytes);
  }
  // Of `message` and `more`.
  void put(RecordKind kind, std::int32_t tag, const std::uint8_t* data, std::uint64_t bytes, std::uint64_t type = 0) {
    std::uint8_t* to = begin(bytes);
    if (bytes != 0) access_.write(to, data, bytes);
    publish(kind, tag, bytes, type);
  }
  // Whether so much more may be sent unasked, of which the receiver keeps at most `bound`. relaxed: no data follows
  // from the count.
  bool afford(std::uint64_t cost, std::uint64_t bound) {
    if (spent_ + cost - taken_ > bound) taken_ = access_.load(pipe_->taken, std::memory_order_relaxed);
    return spent_ + cost - taken_ <= bound;
  }
  void spend(std::uint64_t cost) { spent_ += cost; }
  std::uint64_t spent() const { return spent_; }

  // Slots, each in use from fill_slot() until it is done, withdrawn or freed. relaxed: the record with the offer
  // publishes it.
  void fill_slot(std::uint32_t index, std::uint64_t serial, std::uint64_t address) {
    Slot& slot = pipe_->slots[index];
    access_.write(&slot.address, &address, sizeof address);
    access_.store(slot.word, Slot::pack(serial, SlotState::open), std::memory_order_relaxed);
  }
  // acquire: the receiver has read the message before it says so.
  bool slot_is_done(std::uint32_t index, std::uint64_t serial) {
    return access_.load(pipe_->slots[index].word, std::memory_order_acquire) == Slot::pack(serial, SlotState::done);
  }
  // Whether the receiver has not taken it, and never will.
  bool withdraw_slot(std::uint32_t index, std::uint64_t serial) {
    return access_.exchange_if(pipe_->slots[index].word, Slot::pack(serial, SlotState::open),
                               Slot::pack(serial, SlotState::free));
  }
  // Whether the receiver has asked for the message: its records go out then, until end_slot() or the receiver reads it.
  bool answer_slot(std::uint32_t index, std::uint64_t serial) {
    const std::uint64_t asked = Slot::pack(serial, SlotState::asked);
    // relaxed: the message is this rank's own.
    return access_.load(pipe_->slots[index].word, std::memory_order_relaxed) == asked &&
           access_.exchange_if(pipe_->slots[index].word, asked, Slot::pack(serial, SlotState::sending));
  }
  // Whether the receiver still waits for its records. relaxed: one that comes too late is passed over.
  bool slot_is_sending(std::uint32_t index, std::uint64_t serial) {
    return access_.load(pipe_->slots[index].word, std::memory_order_relaxed) == Slot::pack(serial, SlotState::sending);
  }
  // Before the last record. False: the receiver reads the message.
  bool end_slot(std::uint32_t index, std::uint64_t serial) {
    return access_.exchange_if(pipe_->slots[index].word, Slot::pack(serial, SlotState::sending),
                               Slot::pack(serial, SlotState::free));
  }
  std::uint64_t& slot_word(std::uint32_t index) { return pipe_->slots[index].word; }

 private:
  static constexpr std::uint64_t kSlack = length_of(Size::kInRecord) + 16;  // at the end of the ring, and the next word

  // Where the bytes of the next record go: not around the end of the ring.
  std::uint8_t* begin(std::uint64_t bytes) {
    const std::uint64_t rest = ring_ - (next_ & (ring_ - 1));
    if (length_of(bytes) > rest) publish(RecordKind::skip, 0, rest - kWord);
    return pipe_->at(next_, ring_) + kWord;
  }
  void publish(RecordKind kind, std::int32_t tag, std::uint64_t bytes, std::uint64_t type = 0) {
    std::uint64_t& first = pipe_->word_at(next_, ring_);
    next_ += length_of(bytes);
    // relaxed: the word of this record publishes it.
    access_.store(pipe_->word_at(next_, ring_), 0, std::memory_order_relaxed);
    // release: whoever sees the word sees the record, and that the next one is not there yet.
    access_.store(first, word_of(kind, tag, bytes, type), std::memory_order_release);
    access_.expect_write(pipe_->at(next_, ring_), std::min(length_of(bytes), kMostExpected));  // one as long
  }

  PipeMemory<Size>* pipe_ = nullptr;
  std::uint64_t ring_ = 0;  // bytes
  [[no_unique_address]] Access access_;
  std::uint64_t next_ = 0;
  std::uint64_t head_ = 0;  // as last seen
  std::uint64_t spent_ = 0;
  std::uint64_t taken_ = 0;  // as last seen
};

struct Record {
  RecordKind kind = RecordKind::none;
  std::int32_t tag = 0;
  const std::uint8_t* data = nullptr;
  std::uint64_t bytes = 0;
  std::uint64_t type = 0;  // of a `message`
};

// The receiver's end.
template <class Size, class Access>
class ReceiverEnd {
 public:
  ReceiverEnd() = default;
  explicit ReceiverEnd(std::uint8_t* memory, std::uint64_t ring_bytes = Size::kRing, Access access = {})
      : pipe_(reinterpret_cast<PipeMemory<Size>*>(memory)), ring_(ring_bytes), access_(access) {}
  bool is_open() const { return pipe_ != nullptr; }

  // The next record, if it has arrived. acquire: with its contents.
  Record look() {
    std::uint64_t first = access_.load(pipe_->word_at(next_, ring_), std::memory_order_acquire);
    if (static_cast<RecordKind>(first & 0xffU) == RecordKind::skip) {
      next_ += ring_ - (next_ & (ring_ - 1));
      first = access_.load(pipe_->word_at(next_, ring_), std::memory_order_acquire);
    }
    const std::uint64_t bytes = first >> 8U & 0x7'ffffU;
    // No messenger writes more.
    if (first == 0 || bytes > Size::kInRecord || (next_ & (ring_ - 1)) + length_of(bytes) > ring_) return {};
    return {static_cast<RecordKind>(first & 0xffU), static_cast<std::int32_t>(first >> 32U),
            pipe_->at(next_, ring_) + kWord, bytes, first >> 27U & 0x1fU};
  }
  // The word that will not be zero once the next record is there. If another thread has taken that record meanwhile, it
  // may be anything.
  std::uint64_t& next_word() const { return pipe_->word_at(next_, ring_); }
  // This end has read that record.
  void next(const Record& record) {
    next_ += length_of(record.bytes);
    if (next_ - told_ >= ring_ / 8) tell();
  }
  // It has given so much to its caller.
  void take(std::uint64_t cost) {
    taken_ += cost;
    if (taken_ - told_taken_ >= ring_ / 8) tell();
  }

  // Whether the message of an offer is still there, and stays until finish_slot(). relaxed: the record with the offer
  // has brought the address, and the slot has no other one before this offer ends.
  bool take_slot(std::uint32_t index, std::uint64_t serial) {
    return access_.exchange_if(pipe_->slots[index].word, Slot::pack(serial, SlotState::open),
                               Slot::pack(serial, SlotState::taken));
  }
  std::uint64_t address(std::uint32_t index) {
    std::uint64_t found = 0;
    access_.read(&found, &pipe_->slots[index].address, sizeof found);
    return found;
  }
  // release: after all reads of the message.
  void finish_slot(std::uint32_t index, std::uint64_t serial) {
    access_.store(pipe_->slots[index].word, Slot::pack(serial, SlotState::done), std::memory_order_release);
  }
  // Of a slot that it has taken: the sender may send the message in records, unless this end takes the slot back first.
  // relaxed: nothing was read yet.
  void ask_slot(std::uint32_t index, std::uint64_t serial) {
    access_.store(pipe_->slots[index].word, Slot::pack(serial, SlotState::asked), std::memory_order_relaxed);
  }
  bool take_back_slot(std::uint32_t index, std::uint64_t serial) {
    const std::uint64_t taken = Slot::pack(serial, SlotState::taken);
    return access_.exchange_if(pipe_->slots[index].word, Slot::pack(serial, SlotState::asked), taken) ||
           access_.exchange_if(pipe_->slots[index].word, Slot::pack(serial, SlotState::sending), taken);
  }
  // Whether the sender may still have it there. relaxed: it may change at any time.
  bool slot_is_open(std::uint32_t index, std::uint64_t serial) {
    return access_.load(pipe_->slots[index].word, std::memory_order_relaxed) == Slot::pack(serial, SlotState::open);
  }

 private:
  // Tells the sender what it may write and send again. Not for each record: only a sender without room reads this line,
  // and what it is not told of is less than the room that it does not need. release: after all reads of the records.
  void tell() {
    access_.store(pipe_->taken, told_taken_ = taken_, std::memory_order_relaxed);
    access_.store(pipe_->head, told_ = next_, std::memory_order_release);
  }

  PipeMemory<Size>* pipe_ = nullptr;
  std::uint64_t ring_ = 0;  // bytes
  [[no_unique_address]] Access access_;
  std::uint64_t next_ = 0;
  std::uint64_t taken_ = 0;
  std::uint64_t told_ = 0;  // of next_
  std::uint64_t told_taken_ = 0;
};

using Pipe = PipeMemory<PipeSize>;
using PipeSender = SenderEnd<PipeSize, DirectAccess>;
using PipeReceiver = ReceiverEnd<PipeSize, DirectAccess>;

}  // namespace gc3::p2p
