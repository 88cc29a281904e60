#include "gc3/nccl_tuner/plugin.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "gc3/base/knobs.h"
#include "gc3/nccl_tuner/rules.h"

namespace gc3::nccl_tuner {
namespace {

// ncclResult_t, ncclDebugLogLevel and a subsystem of the log.
constexpr int kSuccess = 0;
constexpr int kSystemError = 2;
constexpr int kInvalidArgument = 4;
constexpr int kWarn = 2;
constexpr int kInfo = 3;
constexpr unsigned long kTuning = 64;
constexpr float kIgnored = -1.0F;  // NCCL_ALGO_PROTO_IGNORE: this communicator does not have it

struct Context {
  std::vector<Rule> rules;
  int nodes = 0;
  int ranks = 0;
};

int as_int(std::size_t value) {
  return static_cast<int>(std::min(value, static_cast<std::size_t>(std::numeric_limits<int>::max())));
}

void tell(Gc3NcclLogger log, int level, const std::string& text) {
  if (log != nullptr) log(level, kTuning, __FILE__, __LINE__, "gc3 tuner: %s", text.c_str());
}

// A table that cannot be read is an error of the communicator, and not a silent choice of NCCL's.
int init(void** context, std::uint64_t /*communicator*/, std::size_t ranks, std::size_t nodes, Gc3NcclLogger log,
         void* /*domains*/, void* /*constants*/) {
  try {
    *context = nullptr;
    const Result<Knobs> knobs = read_knobs();
    if (!knobs.ok()) {
      tell(log, kWarn, knobs.error().str());
      return kInvalidArgument;
    }
    const std::string& path = knobs.value().nccl_tuner;
    Result<std::vector<Rule>> rules = path.empty() ? std::vector<Rule>() : read_rules(path);
    if (!rules.ok()) {
      tell(log, kWarn, rules.error().str());
      return kInvalidArgument;
    }
    const std::size_t count = rules.value().size();
    *context = new Context{std::move(rules).value(), as_int(nodes), as_int(ranks)};
    tell(log, kInfo,
         path.empty() ? "GC3_NCCL_TUNER names no file: NCCL chooses" : std::to_string(count) + " rules of " + path);
    return kSuccess;
  } catch (const std::exception&) {  // out of memory
    return kSystemError;
  }
}

// The first rule that serves the call, and whose algorithm this communicator has, makes that the cheapest.
int get_coll_info(void* context, int function, std::size_t bytes, int operations, float** costs, int algorithms,
                  int protocols, int registered, int* channels) {
  if (context == nullptr || costs == nullptr) return kInvalidArgument;
  const auto& known = *static_cast<const Context*>(context);
  // NCCL passes an array of floats by this type.
  auto* const cost = reinterpret_cast<float*>(costs);
  const Call call{function, bytes, known.nodes, known.ranks, operations, registered};
  for (const Rule& rule : known.rules) {
    if (!serves(rule, call) || rule.algorithm >= algorithms || rule.protocol >= protocols) continue;
    float& own = cost[static_cast<std::ptrdiff_t>(rule.algorithm) * protocols + rule.protocol];
    if (own == kIgnored) continue;
    own = 0.0F;
    if (rule.channels > 0 && channels != nullptr) *channels = rule.channels;
    break;
  }
  return kSuccess;
}

int finalize(void* context) {
  delete static_cast<Context*>(context);
  return kSuccess;
}

constexpr Gc3NcclTuner5 kTuner = {"gc3", init, get_coll_info, finalize};

}  // namespace
}  // namespace gc3::nccl_tuner

extern "C" {
const Gc3NcclTuner5 ncclTunerPlugin_v5 = gc3::nccl_tuner::kTuner;
const Gc3NcclTuner6 ncclTunerPlugin_v6 = {gc3::nccl_tuner::kTuner, nullptr};
}
