#include "gc3/base/knobs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <optional>
#include <system_error>
#include <utility>

#include "gc3/base/errors/common.h"

namespace gc3 {
namespace {

template <class T>
std::optional<T> parse(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  if constexpr (std::floating_point<T>) {
    if (!std::isfinite(value) || value <= 0) return std::nullopt;
  }
  return value;
}

template <class T>
Status read_as(const char* variable, const char* text, std::string_view unit, T& field) {
  const std::optional<T> value = parse<T>(text);
  if (!value) {
    const char* const wanted = std::floating_point<T> ? "a number above 0" : "a whole number from 0";
    return Diagnostic(ErrorCode::BadOption, std::string(variable) + "='" + text + "' in the environment: expected " +
                                                wanted + " (" + std::string(unit) + ") that fits its range");
  }
  field = *value;
  return {};
}
Status read_as(const char*, const char* text, std::string_view, std::string& field) {
  field = text;
  return {};
}

template <class T>
Status read(const Environment& environment, const char* variable, std::string_view unit, T& field) {
  const char* const text = environment(variable);
  if (text == nullptr || *text == '\0') return {};
  return read_as(variable, text, unit, field);
}

// How many characters to put in, take out or replace (Levenshtein).
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace

std::vector<std::string> unknown_variables(const std::vector<std::string>& names) {
  constexpr std::string_view kPrefix = "GC3_";
  constexpr std::size_t kLongest = 64;  // of a name that is compared
  constexpr std::size_t kFurthest = 3;  // of a name that may be meant
  std::vector<std::string> remarks;
  for (const std::string& name : names) {
    const auto is_it = [&](const KnobInfo& knob) { return knob.variable == name; };
    if (!name.starts_with(kPrefix) || std::ranges::any_of(all_knobs(), is_it)) continue;
    std::string_view meant;
    std::size_t nearest = kFurthest + 1;
    for (const KnobInfo& knob : all_knobs()) {
      const std::size_t away = name.size() > kLongest ? nearest : distance(name, knob.variable);
      if (away < nearest) {
        nearest = away;
        meant = knob.variable;
      }
    }
    std::string remark = name;
    std::ranges::replace_if(remark, [](char c) { return c <= ' ' || c == '\x7f'; }, '?');
    remark += " in the environment is not a variable of gc3: ";
    remarks.push_back(remark + (meant.empty() ? "`gc3 env` lists them" : "did you mean " + std::string(meant) + "?"));
  }
  return remarks;
}

const std::vector<KnobInfo>& all_knobs() {
  static const std::vector<KnobInfo> table = {
#define GC3_KNOB(field, type, initial, variable, unit, doc) {#field, variable, #initial, unit, doc},
#include "gc3/base/knobs.def"
#undef GC3_KNOB
  };
  return table;
}

Result<Knobs> read_knobs(const Environment& environment) {
  Knobs knobs;
#define GC3_KNOB(field, type, initial, variable, unit, doc) GC3_CHECK(read(environment, variable, unit, knobs.field));
#include "gc3/base/knobs.def"
#undef GC3_KNOB
  return knobs;
}

std::vector<std::string> environment_names() {
  std::vector<std::string> names;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text(*entry);
    names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

Environment process_environment() {
  return [](const char* variable) -> const char* { return std::getenv(variable); };
}

Environment environment_of(int process) {
  constexpr std::size_t kMost = std::size_t{4} << 20U;  // bytes; the rest of a longer environment is not read
  std::ifstream file("/proc/" + std::to_string(process) + "/environ", std::ios::binary);
  std::string text;
  std::array<char, 4096> part{};
  while (text.size() < kMost && (file.read(part.data(), part.size()), file.gcount() > 0)) {
    text.append(part.data(), static_cast<std::size_t>(file.gcount()));
  }
  return [text = std::move(text)](const char* variable) -> const char* {
    const std::string head = std::string(variable) + "=";
    for (std::size_t at = 0; at < text.size(); at = std::min(text.find('\0', at), text.size() - 1) + 1) {
      if (text.compare(at, head.size(), head) == 0) return text.c_str() + at + head.size();
    }
    return nullptr;
  };
}

Result<Knobs> read_knobs() { return read_knobs(process_environment()); }

}  // namespace gc3
