// What fuzzing and the replay of its corpus ask of any input.
#pragma once

#include <cstddef>
#include <span>

namespace gc3::fuzz {

// Reads `bytes` as a file of whatever form. What is accepted must survive the verifier and come back the same from
// every form that can hold it. Ends the process with a message where that fails.
void judge(std::span<const std::byte> bytes);

}  // namespace gc3::fuzz
