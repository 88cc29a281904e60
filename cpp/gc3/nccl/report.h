// What the overlay tells the user: lines in the style of NCCL_DEBUG, the text of the last error, and a log.
#pragma once

#include <string>

namespace gc3::nccl {

// A line of NCCL's form, if NCCL_DEBUG is INFO or TRACE.
void report(const std::string& text);
// The same if NCCL_DEBUG is set to anything but NONE; it also becomes the text of this thread's last error.
void report_problem(const std::string& text);
// The same for what is wrong with the settings; without NCCL_DEBUG it goes to standard error.
void report_setup(const std::string& text);
// The text of the last error on this thread: the overlay's own, or NCCL's if that is newer.
const char* last_problem(void* comm);

}  // namespace gc3::nccl
