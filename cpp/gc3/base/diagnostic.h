// An error as data: what is wrong, where, and what to do. Every layer makes them; only the front end prints them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gc3/base/error_id.h"
#include "gc3/base/text.h"

namespace gc3 {

enum class ErrorKind : std::uint8_t { User, Internal, Comm };

struct ErrorInfo {
  ErrorId id;
  std::string_view name;
  std::string_view code;
  ErrorKind kind;
  std::string_view title;
  std::string_view hint;
};

// An internal error for an id that is not in the table.
const ErrorInfo& error_info(ErrorId code);
const std::vector<ErrorInfo>& all_errors();

struct SourceLocation {
  std::string file;  // empty: unknown
  int line = 0;

  bool known() const { return !file.empty(); }
  std::string str() const { return known() ? shown(file) + ":" + std::to_string(line) : std::string("unknown place"); }
  bool operator==(const SourceLocation&) const = default;
};

struct Note {
  std::string text;
  SourceLocation where;
};

struct Diagnostic {
  ErrorId code = error_id("GC3-X001");  // Internal
  std::string message;                  // the particulars, without the title
  SourceLocation where;
  std::vector<Note> notes;

  Diagnostic() = default;
  // Replaces characters that must not be shown (a name in a file may hold any) by escapes, here and in the notes.
  Diagnostic(ErrorId c, std::string_view text) : code(c), message(shown(text)) {}

  Diagnostic& at(SourceLocation location) {
    where = std::move(location);
    return *this;
  }
  Diagnostic& note(std::string_view text, SourceLocation location = {}) {
    notes.push_back({shown(text), std::move(location)});
    return *this;
  }
  const ErrorInfo& info() const { return error_info(code); }
  // "file:line: GC3-L001 stale reference: <message>" with a line per note and the hint.
  std::string str() const;
};

}  // namespace gc3
