// What rank 0 says of guests that did not become ranks.
#pragma once

#include <cstdint>
#include <string>

namespace gc3::core {

// The numbers of guests that were turned away.
struct TurnedAway {
  std::uint64_t other_users = 0;
  std::uint64_t silent = 0;
  std::uint64_t wrong = 0;
  std::uint64_t unproven = 0;
  std::uint64_t other_launches = 0;
  std::uint64_t elsewhere = 0;

  std::string str() const {
    std::string text;
    const auto add = [&](std::uint64_t count, const char* what) {
      if (count != 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " " + what;
    };
    add(other_users, "of other users");
    add(silent, "that sent nothing or disconnected");
    add(wrong, "that did not follow gc3's protocol");
    add(unproven, "with another GC3_SECRET");
    add(other_launches, "of other launches");
    add(elsewhere, "of other PID namespaces, or that claimed to be another process");
    return text;
  }
};

}  // namespace gc3::core
