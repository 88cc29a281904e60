// A program that tests of the exchange format read and write.
#pragma once

#include <string_view>

namespace gc3::ir::testing {

// Two ranks that exchange their halves; rank 1 also waits in a nop.
inline constexpr std::string_view kSampleAsText = R"(program "a & b" version 1
collective allreduce ranks 2 chunks 2 in place
protocol LL instances 1 slots 8

rank 0 scratch 1
  tb 0 channel 0 send 1 recv 1
    0 send out[0]
    1 rrcs out[1] -> out[1] signals
    2 recv -> out[0] signals
  tb 1 channel 0
    0 copy out[0] -> sc[0] after (0:2, 0:1)

rank 1
  tb 0 channel 0 send 0 recv 0
    0 send out[1]
    1 rrcs out[0] -> out[0]
    2 recv -> out[1]
)";

}  // namespace gc3::ir::testing
