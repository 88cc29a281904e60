// Text from outside, made fit to be kept or shown.
#pragma once

#include <string>
#include <string_view>

namespace gc3::ir {

// Names are UTF-8; readers refuse others, since the front end could not show them.
bool is_utf8(std::string_view text);
// 'text' for a message: cut after some 40 bytes, with \xHH for what is not printable ASCII.
std::string in_quotes(std::string_view text);

}  // namespace gc3::ir
