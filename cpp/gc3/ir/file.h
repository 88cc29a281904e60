// Reads and writes whole files, for every form of a program.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "gc3/base/result.h"

namespace gc3::ir {

inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30U;  // larger files are refused, not read

// Reads a file of at most `most` bytes, for the readers of all formats. Reads a pipe to its end, but gives up if nobody
// opens its other end within 5 s. An endless device exceeds any limit.
Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t most = kMaxFileBytes);
// Readers see the old file or the new one: writes a temporary file beside `name` and renames it. A failure leaves no
// file behind. There is no fsync: after a power failure the checksum of an image shows damage. Writes directly to a
// device or a pipe.
Status write_file(const std::string& name, std::span<const std::byte> bytes);

}  // namespace gc3::ir
