#include "gc3/nccl_tuner/rules.h"

#include <array>
#include <charconv>
#include <limits>
#include <optional>
#include <system_error>
#include <variant>

#include "gc3/base/errors/files.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/base/text.h"
#include "gc3/base/trusted_file.h"

namespace gc3::nccl_tuner {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr std::size_t kLeastFields = 8;
constexpr std::size_t kFields = 10;
constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
constexpr std::uint64_t kMostInt = std::numeric_limits<int>::max();

// The order is that of NCCL's enumerations (nccl_common.h).
constexpr std::array<std::string_view, 5> kFunctions = {"broadcast", "reduce", "allgather", "reducescatter",
                                                        "allreduce"};
constexpr std::array<std::string_view, 7> kAlgorithms = {"tree",      "ring", "collnet_direct", "collnet_chain", "nvls",
                                                         "nvls_tree", "pat"};
constexpr std::array<std::string_view, 3> kProtocols = {"ll", "ll128", "simple"};

template <std::size_t N>
std::optional<int> position(const std::array<std::string_view, N>& names, std::string_view name) {
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<int>(i);
  }
  return std::nullopt;
}

std::string_view trimmed(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t\r") - first + 1);
}

std::optional<std::uint64_t> number(std::string_view text, std::uint64_t most) {
  std::uint64_t value = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (problem != std::errc{} || end != text.data() + text.size() || value > most) return std::nullopt;
  return value;
}

// A number, or -1 for any.
std::optional<int> number_or_any(std::string_view text) {
  if (text == "-1") return -1;
  const std::optional<std::uint64_t> found = number(text, kMostInt);
  return found ? std::optional(static_cast<int>(*found)) : std::nullopt;
}

std::vector<std::string_view> fields_of(std::string_view line) {
  std::vector<std::string_view> found;
  for (std::size_t end = 0; end != std::string_view::npos; line.remove_prefix(end + 1)) {
    end = line.find(',');
    found.push_back(trimmed(line.substr(0, end)));
    if (end == std::string_view::npos) break;
  }
  return found;
}

// The rule of a line, or what is wrong with it.
std::variant<Rule, std::string> rule_of(const std::vector<std::string_view>& fields) {
  if (fields.size() < kLeastFields || fields.size() > kFields) {
    return "has " + std::to_string(fields.size()) + " fields, not 8 to 10";
  }
  const auto function = position(kFunctions, fields[0]);
  if (!function) return in_quotes(fields[0]) + " is not one of broadcast, reduce, allgather, reducescatter, allreduce";
  const auto least = number(fields[1], kMost);
  const auto most = number(fields[2], kMost);
  if (!least || !most || *least > *most) {
    return in_quotes(fields[1]) + " to " + in_quotes(fields[2]) + " is not a range of bytes";
  }
  const auto algorithm = position(kAlgorithms, fields[3]);
  if (!algorithm) {
    return in_quotes(fields[3]) + " is not one of tree, ring, collnet_direct, collnet_chain, nvls, nvls_tree, pat";
  }
  const auto protocol = position(kProtocols, fields[4]);
  if (!protocol) return in_quotes(fields[4]) + " is not one of ll, ll128, simple";
  std::array<int, 5> rest = {-1, -1, -1, -1, -1};
  for (std::size_t i = 5; i < fields.size(); ++i) {
    const auto value = number_or_any(fields[i]);
    if (!value || (i == 5 && *value == 0)) {
      return in_quotes(fields[i]) + " in field " + std::to_string(i + 1) + " is not a number, or -1 for any";
    }
    rest[i - 5] = *value;
  }
  return Rule{*function, *least, *most, *algorithm, *protocol, rest[0], rest[1], rest[2], rest[3], rest[4]};
}

}  // namespace

Result<std::vector<Rule>> parse_rules(std::string_view text, const std::string& path) {
  std::vector<Rule> rules;
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    const std::size_t end = text.find('\n');
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line.front() == '#') continue;
    const std::vector<std::string_view> fields = fields_of(line);
    if (rules.empty() && fields.front() == "collective_type") continue;  // names of columns
    auto found = rule_of(fields);
    if (const auto* const problem = std::get_if<std::string>(&found)) {
      return Diagnostic(ErrorCode::BadTable, "'" + path + "' line " + std::to_string(line_number) + ": " + *problem);
    }
    rules.push_back(std::get<Rule>(found));
  }
  return rules;
}

Result<std::vector<Rule>> read_rules(const std::string& path) {
  // A byte more tells a file that is too long.
  const TrustedText file = read_trusted(path, kMostBytes + 1, 0022);
  if (file.missing) return Diagnostic(ErrorCode::FileUnreadable, "'" + path + "': there is no such file");
  if (!file.problem.empty()) return Diagnostic(ErrorCode::FileUnreadable, "'" + path + "' " + file.problem);
  if (file.text.size() > kMostBytes) {
    return Diagnostic(ErrorCode::BadTable, "'" + path + "' has more than " + std::to_string(kMostBytes) + " bytes");
  }
  return parse_rules(file.text, path);
}

bool serves(const Rule& rule, const Call& call) {
  const auto fits = [](int wanted, int is) { return wanted == -1 || wanted == is; };
  return rule.function == call.function && rule.least <= call.bytes && call.bytes <= rule.most &&
         fits(rule.nodes, call.nodes) && fits(rule.ranks, call.ranks) && fits(rule.operations, call.operations) &&
         fits(rule.registered, call.registered);
}

}  // namespace gc3::nccl_tuner
