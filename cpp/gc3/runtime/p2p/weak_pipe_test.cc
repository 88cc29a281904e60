// A pipe over weak memory: messages are right whatever loads return, and wrong if any order is left out.
//
// The ends of the pipe are unchanged; only their accesses go to the model. The model executes the loads of a thread in
// the order of the program, so instead of the release that gives room back, the order of reading and giving back is
// left out.
#include <doctest/doctest.h>

#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gc3/runtime/core/waiting/test_weak_memory.h"
#include "gc3/runtime/p2p/pipe.h"

namespace gc3::p2p {
namespace {

using weak::Access;
using weak::Memory;
using weak::Random;

enum class Leaves {
  nothing,
  release_of_word,
  acquire_of_word,
  clear_of_next,      // the word of the record that follows
  read_before_next,   // a record is given back before it is read
  read_before_done,   // a slot is marked as done before its message is read
  release_of_record,  // only of offers, whose record brings the address in the slot
};

// Each end is a thread of a warp of its own.
constexpr std::uint32_t kSender = 0;
constexpr std::uint32_t kReceiver = weak::kLanes;

struct SmallSize {
  static constexpr std::uint64_t kRing = 1024;
  static constexpr std::uint64_t kInRecord = 128;
};
using SmallPipe = PipeMemory<SmallSize>;

class WeakAccess {
 public:
  WeakAccess() = default;
  WeakAccess(Memory& memory, std::uint32_t thread, SmallPipe& pipe, Leaves leaves)
      : memory_(&memory), thread_(thread), pipe_(&pipe), leaves_(leaves) {}

  std::uint64_t load(std::uint64_t& at, std::memory_order order) const {
    if (order == std::memory_order_acquire && !(leaves_ == Leaves::acquire_of_word && in_ring(at))) {
      return memory_->load_acquire(thread_, &at);
    }
    std::uint64_t value = 0;
    memory_->load(thread_, Access::strong, &at, &value, sizeof value);
    return value;
  }
  void store(std::uint64_t& at, std::uint64_t value, std::memory_order order) const {
    if (leaves_ == Leaves::clear_of_next && in_ring(at) && value == 0) return;
    const bool offers = static_cast<RecordKind>(value & 0xffU) == RecordKind::offer;
    const bool left = leaves_ == Leaves::release_of_word || (leaves_ == Leaves::release_of_record && offers);
    if (order == std::memory_order_release && !(left && in_ring(at))) {
      memory_->store_release(thread_, &at, value);
    } else {
      memory_->store(thread_, Access::strong, &at, &value, sizeof value);
    }
  }
  bool exchange_if(std::uint64_t& at, std::uint64_t is, std::uint64_t value) const {
    return memory_->exchange_if(thread_, &at, is, value);
  }
  static void expect_write(const std::uint8_t*, std::uint64_t) {}
  void write(void* to, const void* from, std::uint64_t bytes) const {
    for (std::uint64_t i = 0; i < bytes; i += 4) {
      memory_->store(thread_, Access::plain, static_cast<std::uint8_t*>(to) + i,
                     static_cast<const std::uint8_t*>(from) + i, 4);
    }
  }
  void read(void* to, const void* from, std::uint64_t bytes) const {
    for (std::uint64_t i = 0; i < bytes; i += 4) {
      memory_->load(thread_, Access::plain, static_cast<const std::uint8_t*>(from) + i,
                    static_cast<std::uint8_t*>(to) + i, 4);
    }
  }

 private:
  bool in_ring(const std::uint64_t& at) const {
    const auto* const byte = reinterpret_cast<const std::uint8_t*>(&at);
    return byte >= pipe_->ring && byte < pipe_->ring + SmallSize::kRing;
  }

  Memory* memory_ = nullptr;
  std::uint32_t thread_ = 0;
  SmallPipe* pipe_ = nullptr;
  Leaves leaves_ = Leaves::nothing;
};

using Words = std::vector<std::uint64_t>;

// Every word of a message looks like the word of a record, so that one that is read in its place is noticed.
Words words_of(std::uint64_t number, std::size_t words) {
  Words made(words);
  for (std::size_t i = 0; i < words; ++i) {
    made[i] = (number * 16 + i) << 32U | std::uint64_t{16} << 8U | static_cast<std::uint64_t>(RecordKind::message);
  }
  return made;
}

class Exchange {
 public:
  Exchange(std::uint64_t seed, Leaves leaves) : random_(seed), leaves_(leaves) {
    memory_.add(pipe_.get(), sizeof *pipe_, false);
    memory_.add(lent_.data(), lent_.size() * sizeof(std::uint64_t), false);
    memory_.begin(2);
    sender_ = SenderEnd<SmallSize, WeakAccess>(bytes_of(pipe_.get()), SmallSize::kRing, of(kSender));
    receiver_ = ReceiverEnd<SmallSize, WeakAccess>(bytes_of(pipe_.get()), SmallSize::kRing, of(kReceiver));
  }

  // What went wrong, if anything.
  std::optional<std::string> run() {
    for (int step = 0; step < 600 && wrong_.empty() && memory_.report().empty(); ++step) {
      if (random_.chance(128)) {
        send();
      } else {
        receive();
      }
    }
    sends_ = false;
    for (int step = 0; step < 4000 && !expected_.empty() && wrong_.empty() && memory_.report().empty(); ++step) {
      receive();
    }
    memory_.end();
    if (!memory_.report().empty()) return memory_.report();
    if (wrong_.empty() && !expected_.empty()) wrong_ = "a message has not arrived";
    return wrong_.empty() ? std::nullopt : std::optional(wrong_);
  }

 private:
  static constexpr std::uint32_t kLent = 3;  // slots
  static constexpr std::size_t kLentWords = 4;

  static std::uint8_t* bytes_of(void* memory) { return static_cast<std::uint8_t*>(memory); }
  WeakAccess of(std::uint32_t thread) { return {memory_, thread, *pipe_, leaves_}; }
  std::uint64_t* lent(std::uint32_t slot) { return lent_.data() + slot * kLentWords; }

  void send() {
    if (!sends_) return;
    if (random_.chance(64)) {
      offer();
      return;
    }
    const Words data = words_of(number_, random_.below(15));
    const std::uint64_t bytes = data.size() * sizeof(std::uint64_t);
    if (!sender_.has_room(length_of(bytes))) return;
    sender_.put(RecordKind::message, static_cast<std::int32_t>(number_),
                reinterpret_cast<const std::uint8_t*>(data.data()), bytes);
    expected_.push_back(number_++);
  }
  void offer() {
    const std::uint32_t slot = random_.below(kLent);
    if (serial_[slot] != 0 && !sender_.slot_is_done(slot, serial_[slot])) {
      if (answer(slot)) return;
      if (!random_.chance(32) || !sender_.withdraw_slot(slot, serial_[slot])) return;
    }
    serial_[slot] = 0;
    sending_[slot] = false;
    if (!sender_.has_room(length_of(sizeof(MessageHead)))) return;
    const Words data = words_of(number_, kLentWords);
    of(kSender).write(lent(slot), data.data(), kLentWords * sizeof(std::uint64_t));
    serial_[slot] = number_ + 1;
    sender_.fill_slot(slot, serial_[slot], slot);
    sender_.put(RecordKind::offer, {static_cast<std::int32_t>(number_), slot, 0, serial_[slot]});
    expected_.push_back(number_++);
  }
  // Sends the message of an offer in a record, if the receiver has asked for that, and has not taken it back later.
  bool answer(std::uint32_t slot) {
    if (!sender_.has_room(length_of(kLentWords * sizeof(std::uint64_t)))) return false;
    if (!sending_[slot]) return sending_[slot] = sender_.answer_slot(slot, serial_[slot]);
    if (!sender_.slot_is_sending(slot, serial_[slot]) || !sender_.end_slot(slot, serial_[slot])) return false;
    sending_[slot] = false;
    const std::uint64_t number = std::exchange(serial_[slot], 0) - 1;
    const Words data = words_of(number, kLentWords);
    sender_.put(RecordKind::message, static_cast<std::int32_t>(number),
                reinterpret_cast<const std::uint8_t*>(data.data()), kLentWords * sizeof(std::uint64_t));
    expected_.push_back(number);
    return true;
  }

  void receive() {
    if (!asked_.empty() && random_.chance(64)) {
      const MessageHead head = asked_.front();
      asked_.pop_front();
      if (receiver_.take_back_slot(head.slot, head.serial)) taken_.push_back(head);
    }
    if (!taken_.empty() && random_.chance(128)) {
      finish_offer();
      return;
    }
    const Record record = receiver_.look();
    if (record.kind == RecordKind::none) return;
    if (leaves_ == Leaves::read_before_next) receiver_.next(record);
    for (std::uint32_t i = random_.below(8); i > 0; --i) send();  // meanwhile
    if (record.bytes > SmallSize::kInRecord || record.bytes % 8 != 0) {
      wrong_ = "a record of " + std::to_string(record.bytes) + " bytes";
      return;
    }
    Words got(record.bytes / 8);
    of(kReceiver).read(got.data(), record.data, record.bytes);
    if (record.kind == RecordKind::message) {
      judge(static_cast<std::uint64_t>(record.tag), got, expected_.empty() ? 0 : expected_.front());
    } else {
      MessageHead head;
      std::memcpy(static_cast<void*>(&head), got.data(), sizeof head);
      if (expected_.empty() || static_cast<std::uint64_t>(head.tag) != expected_.front()) wrong_ = "another offer";
      if (head.slot < kLent && receiver_.take_slot(head.slot, head.serial)) {
        if (random_.chance(128)) {
          receiver_.ask_slot(head.slot, head.serial);
          asked_.push_back(head);
        } else {
          taken_.push_back(head);
        }
      }
    }
    if (!expected_.empty()) expected_.pop_front();
    if (leaves_ != Leaves::read_before_next) receiver_.next(record);
  }
  void finish_offer() {
    const MessageHead head = taken_.front();
    taken_.pop_front();
    if (receiver_.address(head.slot) != head.slot) wrong_ = "another address";
    if (leaves_ == Leaves::read_before_done) {
      receiver_.finish_slot(head.slot, head.serial);
      for (int i = 0; i < 4; ++i) send();
    }
    Words got(kLentWords);
    of(kReceiver).read(got.data(), lent(head.slot), kLentWords * sizeof(std::uint64_t));
    judge(static_cast<std::uint64_t>(head.tag), got, static_cast<std::uint64_t>(head.tag));
    if (leaves_ != Leaves::read_before_done) receiver_.finish_slot(head.slot, head.serial);
  }
  void judge(std::uint64_t number, const Words& got, std::uint64_t wanted) {
    if (number == wanted && got == words_of(number, got.size())) return;
    if (wrong_.empty()) wrong_ = "message " + std::to_string(number) + " in place of " + std::to_string(wanted);
  }

  Random random_;
  Leaves leaves_;
  Memory memory_{random_, {}, 128};
  std::unique_ptr<SmallPipe> pipe_ = std::make_unique<SmallPipe>();
  Words lent_ = Words(kLent * kLentWords);
  SenderEnd<SmallSize, WeakAccess> sender_;
  ReceiverEnd<SmallSize, WeakAccess> receiver_;
  bool sends_ = true;
  std::uint64_t number_ = 0;
  std::deque<std::uint64_t> expected_;
  std::uint64_t serial_[kLent] = {};
  bool sending_[kLent] = {};  // answered
  std::deque<MessageHead> asked_;
  std::deque<MessageHead> taken_;
  std::string wrong_;
};

constexpr std::uint64_t kSeeds = 200;
#if defined(__SANITIZE_THREAD__)
constexpr bool kSkipped = true;  // there is only one thread, and nothing for the sanitizer to find
#else
constexpr bool kSkipped = false;
#endif

TEST_CASE("messages through weak memory arrive whole and in order" * doctest::skip(kSkipped)) {
  for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
    const auto wrong = Exchange(seed, Leaves::nothing).run();
    CHECK_MESSAGE(!wrong.has_value(), "seed ", seed, ": ", wrong.value_or(""));
  }
}

TEST_CASE("every order that is left out of a pipe is noticed" * doctest::skip(kSkipped)) {
  for (const Leaves leaves : {Leaves::release_of_word, Leaves::acquire_of_word, Leaves::clear_of_next,
                              Leaves::read_before_next, Leaves::read_before_done, Leaves::release_of_record}) {
    int noticed = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) noticed += Exchange(seed, leaves).run().has_value() ? 1 : 0;
    CHECK_MESSAGE(noticed > 0, "order ", static_cast<int>(leaves));
  }
}

}  // namespace
}  // namespace gc3::p2p
