// Which error it is, without its text: gc3/base/errors/*.h name the ids, group by group, so that a new one recompiles
// only the files that use its group.
#pragma once

#include <cstdint>
#include <string_view>

namespace gc3 {

enum class ErrorId : std::uint16_t {};

// From a code such as "GC3-L001".
consteval ErrorId error_id(std::string_view code) {
  std::uint16_t number = 0;
  for (const char digit : code.substr(5)) number = static_cast<std::uint16_t>(number * 10 + (digit - '0'));
  return static_cast<ErrorId>((code[4] - 'A') << 10 | number);
}

}  // namespace gc3
