// The line formats, bit by bit, and when a receiver may accept a line.
#include <doctest/doctest.h>

#include <cstring>
#include <vector>

#include "gc3/runtime/cpu/cpu_block.h"
#include "gc3/runtime/interp/ll.h"
#include "gc3/runtime/interp/ll128.h"
#include "gc3/runtime/interp/simple.h"

namespace gc3::cpu {
namespace {

using interp::LL;
using interp::LL128;
using interp::Simple;

// One connection over a ring of `slots` slots of 256 bytes, with both of its ends.
struct Wire {
  explicit Wire(std::uint32_t slots = 2) : memory(slots * 256 / 8), arrivals(slots) {
    run.slots = slots;
    run.slot_stride = 256;
    run.slot_bytes = 256;
    auto* bytes = reinterpret_cast<std::uint8_t*>(memory.data());
    sender = {arrivals.data(), &head, bytes, 0, 0, 0};
    receiver = {arrivals.data(), &head, bytes, 0, 0};
  }
  std::uint64_t word(std::size_t slot, std::size_t i) const { return memory[slot * 32 + i]; }

  interp::Run run;
  std::vector<std::uint64_t> memory;
  std::vector<std::uint64_t> arrivals;
  interp::Counter head;
  interp::SendEnd sender;
  interp::RecvEnd receiver;
  CpuBlock block{Kernel{}};
};

template <class Protocol>
void send(Wire& w, const std::vector<std::uint8_t>& data) {
  std::uint8_t stage[1920];
  std::uint8_t* target = Protocol::target(w.run, w.sender, 0, stage);
  std::memcpy(target, data.data(), data.size());
  Protocol::store(w.block, w.run, w.sender, 0, data.size(), target);
  Protocol::post(w.block, w.run, w.sender);
}

// The message of that many bytes, or nothing if it has not arrived.
template <class Protocol>
std::vector<std::uint8_t> receive(Wire& w, std::size_t bytes) {
  std::uint8_t stage[1920];
  if (!Protocol::input_ready(w.block, w.run, w.receiver)) return {};
  const std::uint8_t* in = Protocol::load(w.block, w.run, w.receiver, 0, bytes, stage);
  if (in == nullptr) return {};
  std::vector<std::uint8_t> data(in, in + bytes);
  interp::release_slot(w.block, w.run, w.receiver);
  return data;
}

std::vector<std::uint8_t> message(std::size_t bytes, std::uint8_t first = 1) {
  std::vector<std::uint8_t> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::uint8_t>(first + i);
  return data;
}

TEST_CASE("an LL line is data, flag, data, flag, and the flag is the message's number plus one") {
  Wire w;
  send<LL>(w, message(12));
  CHECK(w.word(0, 0) == 0x00000001'04030201U);
  CHECK(w.word(0, 1) == 0x00000001'08070605U);
  CHECK(w.word(0, 2) == 0x00000001'0c0b0a09U);
  CHECK(w.word(0, 3) == 0x00000001'00000000U);  // the line is padded with zeros
  CHECK(w.word(0, 4) == 0);
  CHECK(w.arrivals[0] == 0);  // data and flag arrive together
  send<LL>(w, message(4));
  CHECK(w.word(1, 0) == 0x00000002'04030201U);
  CHECK(receive<LL>(w, 12) == message(12));
  CHECK(w.head.value == 1);
}

TEST_CASE("an LL128 line is 120 bytes of data and an 8-byte flag") {
  Wire w;
  send<LL128>(w, message(125));
  CHECK(w.word(0, 0) == 0x0807060504030201U);
  CHECK(w.word(0, 14) == 0x7877767574737271U);
  CHECK(w.word(0, 15) == 1);
  CHECK(w.word(0, 16) == 0x7d7c7b7a79U);
  CHECK(w.word(0, 17) == 0);
  CHECK(w.word(0, 31) == 1);
  CHECK(w.arrivals[0] == 0);
  CHECK(receive<LL128>(w, 125) == message(125));
  CHECK(w.head.value == 1);
}

TEST_CASE("a Simple slot holds only data, and its flag is beside it") {
  Wire w;
  CHECK(receive<Simple>(w, 16).empty());
  send<Simple>(w, message(16));
  CHECK(w.word(0, 0) == 0x0807060504030201U);
  CHECK(w.word(0, 1) == 0x100f0e0d0c0b0a09U);
  CHECK(w.word(0, 2) == 0);
  CHECK(w.arrivals[0] == 1);
  CHECK(receive<Simple>(w, 16) == message(16));
  CHECK(w.head.value == 1);
}

TEST_CASE("a line of which only half has arrived is not accepted") {
  Wire ll;
  send<LL>(ll, message(16));
  const std::uint64_t half = ll.memory[3];
  ll.memory[3] = 0;
  CHECK(receive<LL>(ll, 16).empty());
  ll.memory[3] = half;
  CHECK(receive<LL>(ll, 16) == message(16));

  Wire ll128;
  send<LL128>(ll128, message(200));
  ll128.memory[31] = 0;
  CHECK(receive<LL128>(ll128, 200).empty());
  ll128.memory[31] = 1;
  CHECK(receive<LL128>(ll128, 200) == message(200));
}

TEST_CASE("a sender has as many credits as there are slots, and gets one back per message taken out") {
  Wire w(3);
  for (int i = 0; i < 3; ++i) {
    CHECK(interp::credit_ready(w.block, w.run, w.sender));
    send<Simple>(w, message(8));
  }
  CHECK(!interp::credit_ready(w.block, w.run, w.sender));
  CHECK(receive<Simple>(w, 8).size() == 8);
  CHECK(interp::credit_ready(w.block, w.run, w.sender));
  send<Simple>(w, message(8));
  CHECK(!interp::credit_ready(w.block, w.run, w.sender));
}

template <class Protocol>
void goes_round() {
  Wire w(3);
  for (std::size_t i = 0; i < 50; ++i) {
    const std::vector<std::uint8_t> data = message(1 + i * 7 % 100, static_cast<std::uint8_t>(i));
    CHECK(receive<Protocol>(w, data.size()).empty());  // data of an earlier turn is not accepted as new
    send<Protocol>(w, data);
    CHECK(receive<Protocol>(w, data.size()) == data);
  }
}
TEST_CASE("messages go round the ring, and old lines are never accepted as new") {
  goes_round<Simple>();
  goes_round<LL>();
  goes_round<LL128>();
}

TEST_CASE("LL flags repeat after 2^16 messages, and a stale line is never accepted as new") {
  for (std::uint32_t slots : {1U, 3U, 8U}) {
    Wire w(slots);
    // Long messages, at every place of the ring, leave flags in lines that the short ones below do not use.
    for (std::uint64_t step = 0; step < std::uint64_t{3} << 16U; ++step) {
      const bool is_long = step < 2 * slots || step % 50'000 < slots;
      CHECK(receive<LL>(w, 128).empty());
      send<LL>(w, message(is_long ? 128 : 8));
      if (!is_long && step % (LL::kPeriod / 2) < LL::kPeriod / 2 - slots)
        CHECK(receive<LL>(w, 128).empty());  // one line has been sent
      CHECK(receive<LL>(w, 8) == message(8));
    }
  }
}

template <class Protocol>
void keeps_calls_apart() {
  Wire w;
  w.run.tag = 0x8001;
  send<Protocol>(w, message(40));
  w.run.tag = 0x8002;
  CHECK(receive<Protocol>(w, 40).empty());
  w.run.tag = 0x8001;
  CHECK(receive<Protocol>(w, 40) == message(40));
}
TEST_CASE("a message of another call does not arrive") {
  keeps_calls_apart<Simple>();
  keeps_calls_apart<LL>();
  keeps_calls_apart<LL128>();
}

}  // namespace
}  // namespace gc3::cpu
