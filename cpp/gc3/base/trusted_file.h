// Small files that decide how a process works, so that other users must not have written them.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <string>

namespace gc3 {

struct TrustedText {
  std::string text;
  std::string problem;   // why the file is not used, to follow its name; empty: it is
  bool missing = false;  // there is no such file
};

// Reads the first `most` bytes. The file must be an ordinary one of this user or root. `closed`: the permission bits
// that it must not have.
TrustedText read_trusted(const std::string& path, std::size_t most, mode_t closed);

}  // namespace gc3
