#include "gc3/runtime/core/sharing/kept_probe.h"

#include <fcntl.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <limits>
#include <set>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/sha256.h"
#include "gc3/base/text.h"
#include "gc3/base/trusted_file.h"
#include "gc3/runtime/core/sharing/file_descriptor.h"

namespace gc3::core {
namespace {

// Under a sanitizer a copy takes ten times as long, and reading by the system does not.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
constexpr const char* kBuild = GC3_VERSION "-sanitized";
#else
constexpr const char* kBuild = GC3_VERSION;
#endif

constexpr std::string_view kFormat = "gc3-probe-1";
constexpr std::size_t kLongestFile = 4096;
constexpr std::size_t kMostText = 128;  // of a condition
constexpr std::size_t kMostListed = 64;
constexpr std::size_t kDigits = 16;

bool read_number(std::string_view text, std::uint64_t most, std::uint64_t& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() && value <= most;
}

template <class T>
std::string put_number(std::string_view text, T& value) {
  std::uint64_t number = 0;
  if (!read_number(text, std::min<std::uint64_t>(std::numeric_limits<T>::max(), 1ULL << 40U), number)) {
    return in_quotes(text) + " is not a number";
  }
  value = static_cast<T>(number);
  return {};
}

std::string put_text(std::string_view text, std::string& value) {
  if (text.empty() || text.size() > kMostText) return "expected 1 to " + std::to_string(kMostText) + " characters";
  value = text;
  return {};
}

// "8192 300 310 900".
std::string put_times(std::string_view text, CopyTimes& times) {
  std::array<std::uint64_t, 4> numbers{};
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    const std::size_t end = text.find(' ');
    if ((end == std::string_view::npos) != (i + 1 == numbers.size())) return "expected four numbers";
    if (!read_number(text.substr(0, end), std::numeric_limits<std::uint32_t>::max(), numbers[i])) {
      return in_quotes(text) + " is not a number";
    }
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  const auto* const size = std::ranges::find(kCopySizes, numbers[0]);
  if (size == kCopySizes.end()) return "there is no size " + std::to_string(numbers[0]);
  times[static_cast<std::size_t>(size - kCopySizes.begin())] = {static_cast<std::uint32_t>(numbers[1]),
                                                                static_cast<std::uint32_t>(numbers[2]),
                                                                static_cast<std::uint32_t>(numbers[3])};
  return {};
}

std::string put_line(std::string_view key, std::string_view value, ProbeText& into) {
  ProbeConditions& conditions = into.conditions;
  if (key == "gc3") return put_text(value, conditions.version);
  if (key == "cpu") return put_text(value, conditions.cpu);
  if (key == "kernel") return put_text(value, conditions.kernel);
  if (key == "cores") return put_number(value, conditions.cores);
  if (key == "ranks") return put_number(value, conditions.ranks);
  if (key == "measured") return put_number(value, into.measured);
  if (key == "ns") return put_times(value, into.times);
  return into.thresholds.set(key, value);
}

// A condition as it is written: one line of printable text.
std::string plain(std::string text) {
  std::ranges::replace_if(text, [](char c) { return c < ' ' || c > '~'; }, '?');
  text.resize(std::min(text.size(), kMostText));
  return text.empty() ? "unknown" : text;
}

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    // The second is that of some ARM systems, which name no model.
    for (const char* const key : {"model name", "CPU part"}) {
      const std::size_t colon = line.find(": ");
      if (line.starts_with(key) && colon != std::string::npos) return line.substr(colon + 2);
    }
  }
  return {};
}

// The folder and those above it.
bool make_folders(const std::string& folder) {
  for (std::size_t slash = folder.find('/', 1);; slash = folder.find('/', slash + 1)) {
    const std::string part = folder.substr(0, slash);
    constexpr mode_t kOwner = S_IRWXU;
    if (mkdir(part.c_str(), kOwner) != 0 && errno != EEXIST) return false;
    if (slash == std::string::npos) return true;
  }
}

KeptProbe ignored(const std::string& why) { return {{}, why + "; ignored"}; }

// What a file holds, or a problem that follows its name; neither: there is no such file.
KeptProbe read_probe(const std::string& path) {
  const TrustedText read = read_trusted(path, kLongestFile + 1, S_IWGRP | S_IWOTH);
  if (read.missing) return {};
  if (!read.problem.empty()) return ignored(read.problem);
  if (read.text.size() > kLongestFile) return ignored(" has more than " + std::to_string(kLongestFile) + " bytes");
  Result<ProbeText> parsed = ProbeText::parse(read.text);
  if (!parsed.ok()) return ignored(" is damaged: " + parsed.error().message);
  return {std::move(parsed).value(), {}};
}

std::string with_system_error(const std::string& path) { return "'" + path + "': " + std::strerror(errno); }

}  // namespace

ProbeConditions ProbeConditions::here(std::uint32_t cores, std::uint32_t ranks) {
  utsname system{};
  uname(&system);
  return {kBuild, plain(processor()), plain(system.release), cores, ranks};
}

std::string ProbeConditions::file_name() const {
  const std::string machine = version + "\n" + cpu + "\n" + kernel + "\n" + std::to_string(cores);
  return "probe-" + hex(sha256(machine)).substr(0, kDigits) + "-" + std::to_string(ranks) + ".txt";
}

std::string ProbeConditions::describe() const {
  return std::to_string(ranks) + " ranks on " + std::to_string(cores) + " cores of " + cpu + ", kernel " + kernel +
         ", gc3 " + version;
}

std::string ProbeText::write() const {
  std::string text(kFormat);
  const auto add = [&text](std::string_view key, const std::string& value) {
    text += "\n" + std::string(key) + " " + value;
  };
  add("gc3", conditions.version);
  add("cpu", conditions.cpu);
  add("kernel", conditions.kernel);
  add("cores", std::to_string(conditions.cores));
  add("ranks", std::to_string(conditions.ranks));
  add("measured", std::to_string(measured));
  for (std::size_t i = 0; i < kThresholds.size(); ++i) {
    if (thresholds.values[i]) add(kThresholds[i].name, threshold_text(*thresholds.values[i]));
  }
  for (std::size_t i = 0; i < times.size(); ++i) {
    add("ns", std::to_string(kCopySizes[i]) + " " + std::to_string(times[i].put) + " " + std::to_string(times[i].take) +
                  " " + std::to_string(times[i].read));
  }
  return text + "\n";
}

Result<ProbeText> ProbeText::parse(std::string_view text) {
  const auto wrong = [](std::size_t line, const std::string& why) {
    return Diagnostic(ErrorCode::BadOption, "line " + std::to_string(line) + ": " + why);
  };
  ProbeText found;
  std::set<std::string> seen;
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (number == 1) {
      if (line != kFormat) return wrong(1, "expected " + std::string(kFormat));
      seen.insert("");
      continue;
    }
    const std::size_t space = line.find(' ');
    if (space == std::string_view::npos) return wrong(number, in_quotes(line) + " is not a name and a value");
    // Of the times there is a line for each size.
    const std::size_t whole = line.find(' ', space + 1);
    const bool times = line.substr(0, space) == "ns";
    if (!seen.insert(std::string(line.substr(0, times ? whole : space))).second) {
      return wrong(number, in_quotes(line.substr(0, space)) + " is there twice");
    }
    const std::string why = put_line(line.substr(0, space), line.substr(space + 1), found);
    if (!why.empty()) return wrong(number, why);
  }
  if (seen.empty()) return wrong(1, "expected " + std::string(kFormat));
  return found;
}

Result<ProbeWish> ProbeWish::from(const std::string& probe, const std::string& cache) {
  ProbeWish wish(probe != "0");
  wish.folder = cache_folder(cache);
  if (probe == "anew") wish.mode = Mode::anew;
  if (probe.empty() || probe == "0" || probe == "1" || probe == "anew") return wish;
  const auto unusable = [&](const std::string& why) {
    return Diagnostic(ErrorCode::BadOption, "GC3_PROBE='" + probe + "' in the environment" + why);
  };
  const TrustedText read = read_trusted(probe, kLongestFile + 1, S_IWGRP | S_IWOTH);
  if (!read.problem.empty()) return unusable(read.problem + "; expected 0, 1, anew or a file of thresholds");
  if (read.text.size() > kLongestFile) return unusable(" has more than " + std::to_string(kLongestFile) + " bytes");
  Result<ProbeText> parsed = ProbeText::parse(read.text);
  if (!parsed.ok()) return unusable(": " + parsed.error().message);
  wish.mode = Mode::given;
  wish.given = parsed.value().thresholds;
  wish.file = probe;
  return wish;
}

std::string cache_folder(const std::string& said) {
  if (said == "off") return {};
  if (!said.empty()) return said;
  std::vector<char> buffer(1U << 14U);
  passwd entry{};
  passwd* found = nullptr;
  // Not HOME, which may be that of another user after a change of users.
  if (getpwuid_r(geteuid(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return {};
  return std::string(entry.pw_dir) + "/.cache/gc3";
}

KeptProbe read_kept(const std::string& folder, const ProbeConditions& conditions) {
  const std::string path = folder + "/" + conditions.file_name();
  KeptProbe kept = read_probe(path);
  if (kept.found && kept.found->conditions != conditions) {
    kept = ignored(" holds for " + in_quotes(kept.found->conditions.describe()));
  } else if (kept.found &&
             !std::ranges::all_of(kept.found->thresholds.values, [](const auto& value) { return value.has_value(); })) {
    kept = ignored(" is damaged: a threshold is missing");
  }
  if (!kept.problem.empty()) kept.problem = "'" + path + "'" + kept.problem;
  return kept;
}

std::string keep(const std::string& folder, const ProbeText& probe) {
  if (!make_folders(folder)) return with_system_error(folder);
  const std::string path = folder + "/" + probe.conditions.file_name();
  std::string draft = path + ".XXXXXX";  // no number of a process: containers that share a home may have the same one
  const FileDescriptor file(mkostemp(draft.data(), O_CLOEXEC));
  if (!file.valid()) return with_system_error(draft);
  const std::string text = probe.write();
  const bool written = write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (written && rename(draft.c_str(), path.c_str()) == 0) return {};
  const std::string why = with_system_error(path);
  unlink(draft.c_str());
  return why;
}

std::vector<std::string> list_kept(const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code problem;
  for (const auto& entry : std::filesystem::directory_iterator(folder, problem)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("probe-") && name.ends_with(".txt")) paths.push_back(entry.path().string());
    if (paths.size() == kMostListed) break;
  }
  std::ranges::sort(paths);
  std::vector<std::string> lines;
  for (const std::string& path : paths) {
    const KeptProbe read = read_probe(path);
    if (!read.found && read.problem.empty()) continue;  // removed meanwhile
    std::string line = path + read.problem;
    if (read.found) {
      const ProbeText& kept = *read.found;
      const ProbeConditions here = ProbeConditions::here(kept.conditions.cores, kept.conditions.ranks);
      line += ": " + shown(kept.conditions.describe()) + ", measured " + utc(kept.measured);
      if (kept.conditions != here) line += " (does not hold here)";
      for (std::size_t i = 0; i < kThresholds.size(); ++i) {
        if (!kept.thresholds.values[i]) continue;
        line += (i == 0 ? ": " : ", ") + std::string(kThresholds[i].name) + " " +
                threshold_text(*kept.thresholds.values[i]);
      }
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string utc(std::int64_t seconds) {
  const auto time = static_cast<std::time_t>(seconds);
  std::tm parts{};
  std::array<char, 64> text{};
  if (gmtime_r(&time, &parts) == nullptr) return "at an unknown time";
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts)};
}

}  // namespace gc3::core
