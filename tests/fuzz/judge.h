// The requirements of fuzzing and of the replay of its corpus for any input.
#pragma once

#include <cstddef>
#include <span>

namespace gc3::fuzz {

// Reads `bytes` as a file of any form. A program that is accepted must pass through the verifier without a crash, and
// must be the same after a round trip through each form that can hold it. Otherwise ends the process with a message.
void judge(std::span<const std::byte> bytes);

}  // namespace gc3::fuzz
