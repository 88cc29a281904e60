// Prepares text from outside to be stored or shown.
#pragma once

#include <string>
#include <string_view>

namespace gc3 {

// Names are UTF-8. Readers refuse others, since the front end could not show them.
bool is_utf8(std::string_view text);
// What a terminal or a page may show. Control characters, invisible formatting characters (directions, joiners, line
// separators, tags) and bytes that are not UTF-8 become \n, \xHH, \uHHHH or \UHHHHHHHH.
std::string shown(std::string_view text);
// 'text' for a message: cut after some 40 bytes, with \xHH for what is not printable ASCII.
std::string in_quotes(std::string_view text);

}  // namespace gc3
