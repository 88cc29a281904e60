#include "gc3/base/thresholds.h"

#include <charconv>
#include <system_error>

#include "gc3/base/text.h"

namespace gc3 {
namespace {

std::string known_names() {
  std::string names;
  for (const ThresholdInfo& info : kThresholds) names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

}  // namespace

std::string threshold_text(std::uint64_t value) {
  return value == Thresholds::kNever ? "never" : std::to_string(value);
}

std::string ThresholdChanges::set(std::string_view name, std::uint64_t value) {
  for (std::size_t i = 0; i < kThresholds.size(); ++i) {
    const ThresholdInfo& info = kThresholds[i];
    if (info.name != name) continue;
    const bool never = info.may_be_never && value == Thresholds::kNever;
    if (!never && (value < info.least || value > info.most)) {
      return std::string(name) + " is " + threshold_text(value) + ", not a number from " + std::to_string(info.least) +
             " to " + std::to_string(info.most) + (info.may_be_never ? " or never" : "");
    }
    values[i] = value;
    return {};
  }
  return "there is no threshold " + in_quotes(name) + "; expected one of " + known_names();
}

std::string ThresholdChanges::set(std::string_view name, std::string_view value) {
  if (value == "never") return set(name, Thresholds::kNever);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || number == Thresholds::kNever) {
    return std::string(name) + " is " + in_quotes(value) + ", not a number";
  }
  return set(name, number);
}

Thresholds ThresholdChanges::applied_to(Thresholds all) const {
  for (std::size_t i = 0; i < kThresholds.size(); ++i) {
    if (values[i]) all.*kThresholds[i].member = *values[i];
  }
  return all;
}

}  // namespace gc3
