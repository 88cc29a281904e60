// The binary image of a program: what `gc3 compile -o` writes and the runtime loads. Little-endian, versioned,
// fixed-width records, a checksum over the body. read(write(p)) == p.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/ir/classes.h"
#include "gc3/ir/file.h"
#include "gc3/ir/program.h"

namespace gc3::ir {

// A program without a table of source lines is written as version 1, which has no place for one; one with switch groups
// as version 3, with or without that table; one whose collective has tensors as version 4, likewise; and one of which
// rank 0 stands for all as version 5.
inline constexpr std::uint32_t kImageVersion = 1;
inline constexpr std::uint32_t kImageVersionWithSource = 2;
inline constexpr std::uint32_t kImageVersionWithGroups = 3;
inline constexpr std::uint32_t kImageVersionWithCompute = 4;
inline constexpr std::uint32_t kImageVersionOfClasses = 5;

// `with_source`: with the table of source lines, if there is one. Without it, equal programs have equal images.
std::vector<std::byte> write_image(const Program& program, bool with_source = true);
std::vector<std::byte> write_image(const ClassProgram& program, bool with_source = true);
// Accepts any bytes: a truncated, damaged or hostile file gives a Diagnostic, never a crash or an outsized allocation.
// The program it returns is safe to index (offsets and enums are in range); `verify` checks the rest.
Result<Program> read_image(std::span<const std::byte> bytes);
// The same, without making the program of all ranks from one that stands for them.
Result<ClassProgram> read_classes(std::span<const std::byte> bytes);

Status save(const auto& program, const std::string& path) { return write_file(path, write_image(program)); }
Result<Program> load(const std::string& path);

}  // namespace gc3::ir
