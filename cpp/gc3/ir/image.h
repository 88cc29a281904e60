// The binary image of a program: what `gc3 compile -o` writes and the runtime loads. Little-endian, versioned,
// fixed-width records, a checksum over the body. read(write(p)) == p.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

// A program without a table of source lines is written as version 1, which has no place for one; one with switch groups
// as version 3, with or without that table; one whose collective has tensors as version 4, likewise.
inline constexpr std::uint32_t kImageVersion = 1;
inline constexpr std::uint32_t kImageVersionWithSource = 2;
inline constexpr std::uint32_t kImageVersionWithGroups = 3;
inline constexpr std::uint32_t kImageVersionWithCompute = 4;

// `with_source`: with the table of source lines, if there is one. Without it, equal programs have equal images.
std::vector<std::byte> write_image(const Program& program, bool with_source = true);
// Accepts any bytes: a truncated, damaged or hostile file gives a Diagnostic, never a crash or an outsized allocation.
// The program it returns is safe to index (offsets and enums are in range); `verify` checks the rest.
Result<Program> read_image(std::span<const std::byte> bytes);

Status save(const Program& program, const std::string& path);
Result<Program> load(const std::string& path);

}  // namespace gc3::ir
