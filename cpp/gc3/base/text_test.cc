#include "gc3/base/text.h"

#include <doctest/doctest.h>

#include "gc3/base/diagnostic.h"
#include "gc3/base/errors/files.h"

namespace gc3 {
namespace {

TEST_CASE("text: UTF-8") {
  for (const std::string_view good : {"", "plain", "\xc2\x80", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xef\xbf\xbf",
                                      "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf", "a\xc3\xa9z"}) {
    CHECK(is_utf8(good));
  }
  // A lone continuation byte, overlong forms, a surrogate, beyond U+10FFFF, cut short, a wrong continuation byte.
  for (const std::string_view bad :
       {"\x80", "\xc0\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80",
        "\xf5\x80\x80\x80", "\xff", "a\xc3", "\xe2\x82", "\xf0\x90\x80", "\xe2\x82z", "\xf0\x90z\x80"}) {
    CHECK_FALSE(is_utf8(bad));
  }
}

TEST_CASE("text: quoted for a message") {
  CHECK(in_quotes("it") == "'it'");
  CHECK(in_quotes("\xff\n") == "'\\xff\\x0a'");
  CHECK(in_quotes(std::string(50, 'a')) == "'" + std::string(40, 'a') + "...'");
}

TEST_CASE("text: invisible characters are shown as escapes") {
  CHECK(shown("caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80 a\\b") == "caf\xc3\xa9 \xe2\x86\x92 \xf0\x9f\x98\x80 a\\b");
  CHECK(shown("\x1b[2J\x07") == "\\x1b[2J\\x07");
  CHECK(shown("a\nb\tc\x7f\xc2\x9b") == "a\\nb\\x09c\\x7f\\x9b");
  CHECK(shown("\xe2\x80\xae"
              "gnp"
              "\xef\xbb\xbf\xf3\xa0\x81\x81") == "\\u202egnp\\ufeff\\U000e0041");
  CHECK(shown("\xff\xe2\x80") == "\\xff\\xe2\\x80");
  CHECK(shown(std::string_view("\0", 1)) == "\\x00");
  CHECK(Diagnostic(ErrorCode::BadText, "'\x1b'").note("\n", {"a\rb", 3}).str() ==
        "GC3-I006 program text does not parse: '\\x1b'\n  note: \\n (a\\x0db:3)\n  hint: see docs/ir.md for the text "
        "form");
}

}  // namespace
}  // namespace gc3
