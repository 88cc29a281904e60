// Which messages are offered, and which are copied.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gc3/runtime/p2p/limits.h"
#include "gc3/runtime/p2p/messenger.h"
#include "gc3/runtime/p2p/test_pairs.h"

namespace gc3::p2p {
namespace {

using testing::Bytes;
using testing::content;
using testing::Rank;
using testing::run;

// Reading is said to pay from 16 KiB on, so that the longer of these messages are offered.
std::string behind_an_offer(Rank& me) {
  constexpr std::uint64_t kBytes = 40000;
  Messenger& messages = *me.messages;
  std::vector<Bytes> data;
  for (std::uint64_t i = 0; i < 3; ++i) data.push_back(content(kBytes, i));
  if (me.rank() == 0) {
    std::vector<std::shared_ptr<Request>> sends;
    for (const Bytes& one : data) sends.push_back(messages.start(send_of(one.data(), kBytes, 1, 0)).value());
    GC3_EXPECT(!sends[0]->is_done(), "it is not offered");
    const bool copied = sends[1]->is_done() && sends[2]->is_done();
    GC3_EXPECT(copied == me.group->wait_policy().core_each(), std::to_string(copied));
    GC3_EXPECT_OK(messages.send(nullptr, 0, 1, 1));
    for (const auto& one : sends) GC3_EXPECT_OK(messages.wait(*one));
    return "";
  }
  GC3_EXPECT_OK(messages.receive(nullptr, 0, 0, 1));  // sent last
  for (std::uint64_t i = 0; i < 3; ++i) {
    Bytes got(kBytes);
    GC3_EXPECT_OK(messages.receive(got.data(), kBytes, 0, 0));
    GC3_EXPECT(got == data[i], std::to_string(i));
  }
  return "";
}

TEST_CASE("behind a message that waits for its receiver, short ones are copied where each rank has a core") {
  run({2, true, 30, kLeastRead}, behind_an_offer);
}

}  // namespace
}  // namespace gc3::p2p
