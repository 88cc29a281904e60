#include "gc3/base/knobs.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <concepts>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <system_error>
#include <utility>

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

}  // namespace

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
