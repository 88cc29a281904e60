// Measurements of how to copy messages, kept in the user's cache folder for the next job.
//
// A file holds for one number of ranks on one machine: its name is made of the version of gc3, the processor, the
// kernel and the number of cores, and its text repeats them. It contains only numbers, which are checked against
// bounds. A file that is damaged, that holds for something else, or that other users could have written, is not used.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/knobs.h"
#include "gc3/base/result.h"
#include "gc3/base/thresholds.h"
#include "gc3/runtime/core/sharing/copy_times.h"

namespace gc3::core {

// What measurements hold for.
struct ProbeConditions {
  std::string version;  // of gc3
  std::string cpu;
  std::string kernel;
  std::uint32_t cores = 0;  // that the ranks of the job may use
  std::uint32_t ranks = 0;

  bool operator==(const ProbeConditions&) const = default;
  // Those of this machine.
  static ProbeConditions here(std::uint32_t cores, std::uint32_t ranks);
  std::string file_name() const;
  // "4 ranks on 2 cores of AMD EPYC, kernel 6.1, gc3 0.1".
  std::string describe() const;
};

struct ProbeText {
  ProbeConditions conditions;
  std::int64_t measured = 0;  // seconds since 1970; 0: not said
  ThresholdChanges thresholds;
  CopyTimes times = {};

  std::string write() const;
  // Fails with the line that is wrong.
  static Result<ProbeText> parse(std::string_view text);
};

// Where the thresholds of a job are from.
struct ProbeWish {
  enum class Mode : std::uint8_t { measure, anew, assume, given };
  Mode mode = Mode::measure;
  std::string folder = {};  // for kept measurements; empty: none are kept
  ThresholdChanges given = {};
  std::string file = {};  // that they are from

  ProbeWish(bool measures = true) : mode(measures ? Mode::measure : Mode::assume) {}  // NOLINT(*-explicit-*)
  // By GC3_PROBE and GC3_CACHE.
  static Result<ProbeWish> from(const std::string& probe, const std::string& cache);

  bool operator==(const ProbeWish&) const = default;
};

// The folder for what is kept between jobs, by GC3_CACHE; empty: nothing is kept.
std::string cache_folder(const std::string& said);

// The measurements kept in a folder for these conditions; none if there are none, or with the reason if they are not
// used.
struct KeptProbe {
  std::optional<ProbeText> found;
  std::string problem;
};
KeptProbe read_kept(const std::string& folder, const ProbeConditions& conditions);
// Replaces them, all at once. Returns why it could not; empty: it did.
std::string keep(const std::string& folder, const ProbeText& probe);

// A line for each file of measurements in a folder: what it holds for and its values, or why it is not used.
std::vector<std::string> list_kept(const std::string& folder);

// "2026-01-31 12:00 UTC".
std::string utc(std::int64_t seconds);

}  // namespace gc3::core
