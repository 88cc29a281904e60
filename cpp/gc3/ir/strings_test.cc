#include "gc3/ir/strings.h"

#include <doctest/doctest.h>

namespace gc3::ir {
namespace {

TEST_CASE("strings: UTF-8") {
  for (const std::string_view good : {"", "plain", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf",
                                      "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
    CHECK(is_utf8(good));
  }
  // Continuation alone, overlong forms, a surrogate, beyond U+10FFFF, cut short, wrong continuation.
  for (const std::string_view bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "a\xc3", "\xe2\x82", "\xf0\x90\x80", "\xe2\x82z", "\xf0\x90z\x80"}) {
    CHECK_FALSE(is_utf8(bad));
  }
}

TEST_CASE("strings: quoted for a message") {
  CHECK(in_quotes("it") == "'it'");
  CHECK(in_quotes("\xff\n") == "'\\xff\\x0a'");
  CHECK(in_quotes(std::string(50, 'a')) == "'" + std::string(40, 'a') + "...'");
}

}  // namespace
}  // namespace gc3::ir
