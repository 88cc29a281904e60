// Whole files in and out, for every form of a program.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::ir {

inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30U;  // larger files are refused, not read

// Reads a file of at most `most` bytes, for the readers of all formats. A pipe is read to its end, and given up when
// nobody opens its other end for 5 s; devices without end are larger than any limit.
Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t most = kMaxFileBytes);
// Readers see the old file or the new one: writes a temporary file beside `name` and renames it. A failure leaves
// nothing behind. There is no fsync: after a power cut the checksum of an image tells. A device or a pipe is written to
// as it is.
Status write_file(const std::string& name, std::span<const std::byte> bytes);

}  // namespace gc3::ir
