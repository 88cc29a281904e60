// The environment variables of GC3: one table, one reader. No other part of GC3 reads the environment.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "gc3/base/result.h"

namespace gc3 {

struct Knobs {
#define GC3_KNOB(field, type, initial, variable, unit, doc) type field = initial;
#include "gc3/base/knobs.def"
#undef GC3_KNOB
};

// A row of the table.
struct KnobInfo {
  std::string_view field;
  std::string_view variable;
  std::string_view initial;  // the default, as text
  std::string_view unit;
  std::string_view doc;
};
const std::vector<KnobInfo>& all_knobs();

// The value of a variable, or nullptr.
using Environment = std::function<const char*(const char* variable)>;

// The names of all variables of this process, in any encoding.
std::vector<std::string> environment_names();

// A remark on each name that only looks like one of gc3's variables, with what may be meant.
std::vector<std::string> unknown_variables(const std::vector<std::string>& names);

// The environment of this process.
Environment process_environment();

// The environment that another process was started with. Empty where it cannot be read: the process belongs to another
// user or has ended.
Environment environment_of(int process);

// An unset or empty variable leaves the default. A BadOption for a value that does not parse or is out of range.
Result<Knobs> read_knobs(const Environment& environment);
// The same from the environment of this process. Read at every call, so that a script may set a variable first.
Result<Knobs> read_knobs();

}  // namespace gc3
