// Programs by somebody who tried to have wrong ones proven: each was, once.
#include <doctest/doctest.h>

#include <string>
#include <string_view>

#include "gc3/ir/direct/program.h"
#include "gc3/verify/direct/verify.h"

namespace gc3::verify::direct {
namespace {

// Not proven, with `part` in the findings.
void check_found(std::string_view text, std::string_view part) {
  const auto program = ir::direct::parse_text(text);
  REQUIRE_MESSAGE(program.ok(), program.error().str());
  std::string found;
  for (const Diagnostic& d : verify(program.value()).diagnostics) found += d.str();
  CHECK_MESSAGE(found.find(part) != std::string::npos, found);
}

TEST_CASE("what an adversary had proven is refused") {
  SUBCASE("two threads of a threadblock give one counter") {
    check_found(R"(direct "t" version 1
collective custom "c" ranks 3 chunks 1
  rank 0 in 1 out 1
  rank 1 in 1 out 2
    out[0] = 2:0
    out[1] = 2:0
  rank 2 in 1 out 1
halves 1
channel 0 from 0 to 1
channel 1 from 0 to 2
channel 2 from 2 to 0
channel 3 from 1 to 2
rank 0
  tb 0
    0 wait 2
    1 signal 0
    2 signal 1 0
rank 1
  tb 0
    0 signal 3 relaxed
    1 wait 0
    2 sync
    3 move out[0] -> out[1]
    4 sync
    5 wait 0
rank 2
  tb 0
    0 wait 3
    1 sync
    2 move in[0] -> 1:out[0]
    3 sync
    4 signal 2
    5 wait 1
)",
                "threads 0 and 1 of a threadblock signal number 0");
  }
  SUBCASE("two threads of a threadblock take one counter") {
    check_found(R"(direct "t" version 1
collective allreduce ranks 1 chunks 2
halves 1
semaphore 0 rank 0 initial 0
semaphore 1 rank 0 initial 0
semaphore 2 rank 0 initial 0
semaphore 3 rank 0 initial 0
semaphore 4 rank 0 initial 0
rank 0 scratch 2
  tb 0
    0 release 0 1
    1 sync
    2 move in[0] -> sc[0]
    3 sync
    4 release 0
    5 acquire 3
  tb 1
    0 acquire 0
    1 acquire 1 0
    2 release 3 4
  tb 2
    0 acquire 4
    1 sync
    2 move sc[0] -> out[0]
    3 move in[1] -> out[1]
)",
                "threads 0 and 1 of a threadblock acquire number 0");
  }
  SUBCASE("two ranks store one value into one packet") {
    check_found(R"(direct "t" version 1
collective custom "c" ranks 3 chunks 1
  rank 0 in 1 out 1
  rank 1 in 2 out 1
    out[0] = 1:0
  rank 2 in 1 out 1
    out[0] = 1:0
halves 1
channel 0 from 1 to 0
channel 1 from 1 to 2
channel 2 from 0 to 1
channel 3 from 2 to 1
rank 0
  tb 0
    0 wait 0
    1 sync
    2 move 1:sc[4] -> 1:pkt sc[0]
    3 sync
    4 signal 2
rank 1 scratch 8
  tb 0
    0 move in[0] -> sc[4]
    1 sync
    2 signal 0 1
    3 wait 2
    4 sync
    5 move pkt sc[0] -> out[0]
    6 sync
    7 move in[1] -> sc[4]
    8 sync
    9 wait 3
rank 2
  tb 0
    0 wait 1
    1 sync
    2 move 1:sc[4] -> 1:pkt sc[0] out[0]
    3 sync
    4 signal 3
)",
                "packets[0]");
  }
  SUBCASE("one that stores a packet again comes after nobody") {
    check_found(R"(direct "t" version 1
collective custom "c" ranks 4 chunks 1
  rank 0 in 1 out 1
  rank 1 in 1 out 1
    out[0] = 2:0
  rank 2 in 1 out 1
  rank 3 in 1 out 1
halves 1
channel 0 from 3 to 2
channel 1 from 1 to 0
channel 2 from 0 to 2
channel 3 from 2 to 3
channel 4 from 2 to 0
rank 0 scratch 1
  tb 0
    0 wait 4
    1 sync
    2 move pkt sc[0] -> 1:pkt sc[0]
    3 sync
    4 signal 2
    5 wait 1
rank 1 scratch 1
  tb 0
    0 move pkt sc[0] -> out[0]
    1 sync
    2 signal 1
rank 2 scratch 1
  tb 0
    0 signal 4
    1 move in[0] -> 0:pkt sc[0]
    2 wait 2
  tb 1
    0 signal 3
    1 wait 0
    2 signal 3
    3 wait 0
    4 signal 3
    5 wait 0
    6 signal 3
    7 wait 0
    8 signal 3
    9 wait 0
    10 signal 3
    11 wait 0
    12 sync
    13 move in[0] -> 1:pkt sc[0]
rank 3 scratch 1
  tb 0
    0 wait 3
    1 signal 0
    2 wait 3
    3 signal 0
    4 wait 3
    5 signal 0
    6 wait 3
    7 signal 0
    8 wait 3
    9 signal 0
    10 wait 3
    11 signal 0
)",
                "packets[0]");
  }
  SUBCASE("other programs use both halves of scratch") {
    check_found(R"(direct "t" version 1
collective custom "c" ranks 2 chunks 1
  rank 0 in 1 out 1
    out[0] = 1:0
  rank 1 in 1 out 1
halves 2 shared scratch
channel 0 from 1 to 0
channel 1 from 0 to 1
rank 0
  tb 0
    0 signal 1 relaxed
    1 wait 0
    2 sync
    3 move 1:sc[0] -> out[0]
rank 1 scratch 1
  tb 0
    0 wait 1 relaxed
    1 sync
    2 move in[0] -> sc[0]
    3 sync
    4 signal 0
)",
                "scratch[0]");
  }
  SUBCASE("a flush makes nothing visible") {
    check_found(R"(direct "t" version 1
collective custom "c" ranks 2 chunks 1
  rank 0 in 1 out 1
  rank 1 in 1 out 1
    out[0] = 0:0
halves 1
channel 0 from 0 to 1 port
channel 1 from 0 to 1
channel 2 from 1 to 0
rank 0
  tb 0
    0 wait 2
    1 sync
    2 move in[0] -> 1:out[0] through 0
    3 flush 0
    4 signal 1
rank 1
  tb 0
    0 signal 2 relaxed
    1 wait 1
)",
                "the caller of rank 1 reads it after call 1");
  }
  SUBCASE("packets where other programs store data") {
    check_found(R"(direct "t" version 1
collective allgather ranks 1 chunks 1
halves 2 shared scratch
rank 0 scratch 1
  tb 0
    0 move in[0] -> pkt sc[0]
    1 move pkt sc[0] -> out[0]
)",
                "their data may be taken for a flag");
  }
}

}  // namespace
}  // namespace gc3::verify::direct
