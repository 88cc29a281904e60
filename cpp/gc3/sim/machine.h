// The machine as the simulator sees it: the resources that transfers share, and the routes between ranks.
//
// A route occupies the resources of a direct link, or those of the two ports of the first fabric that joins the ranks.
// Rates are those that one protocol reaches: the code that builds a machine has applied the efficiencies already.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "gc3/base/errors/simulator.h"
#include "gc3/base/ids.h"
#include "gc3/base/result.h"

namespace gc3::sim {

using Time = std::int64_t;  // picoseconds: sums do not depend on their order, so every run gives the same result

inline constexpr Time kPicosecondsPerSecond = 1'000'000'000'000;
inline constexpr double kLongestSeconds = 1e6;  // the largest value of one number; sums of many still fit a Time

inline bool is_time(double s) { return s >= 0 && s <= kLongestSeconds; }  // false for NaN

inline Diagnostic bad_simulation(const std::string& what) { return Diagnostic(ErrorCode::BadSimulation, what); }

constexpr Time picoseconds(double seconds) {
  return static_cast<Time>(seconds * static_cast<double>(kPicosecondsPerSecond) + 0.5);
}
constexpr double seconds(Time t) { return static_cast<double>(t) / static_cast<double>(kPicosecondsPerSecond); }

// A resource of limited bandwidth that transfers use one after the other.
struct Resource {
  double bytes_per_s = 0;  // of data, not counting flags
  double message_s = 0;    // that every slice takes in addition to its bytes
};

// A kind of wire.
struct LinkClass {
  double latency_s = 0;               // from the last byte sent to the last byte usable
  double connection_bytes_per_s = 0;  // the limit of one connection; 0: no limit
  double connection_message_s = 0;    // that every slice takes on its connection
  bool staged = false;                // the threadblock hands over its slice and continues (a proxy sends it)
  double in_switch = 0;  // the fraction of its rates at which a switch multicasts and adds up; 0: it does neither
  double requests = 0;   // messages are pulled: what their requests take of the way back, for each byte; 0: pushed
  bool engines = false;  // copy engines of the sender move its messages
};

struct Link {
  std::uint32_t src = 0;
  std::uint32_t dst = 0;
  std::uint32_t link_class = 0;
  std::vector<std::uint32_t> resources;
};

struct Port {
  std::uint32_t rank = 0;
  std::vector<std::uint32_t> out;
  std::vector<std::uint32_t> into;
};

struct Fabric {
  std::uint32_t link_class = 0;
  bool across_nodes = false;  // joins only ranks of different nodes
  std::vector<Port> ports;
};

struct MachineData {
  std::vector<std::uint32_t> node_of;  // of each rank
  std::vector<Resource> resources;
  std::vector<LinkClass> classes;
  std::vector<Link> links;
  std::vector<Fabric> fabrics;
  // The resource of each rank's memory, for all that its threadblocks read and write; none: memory does not limit them.
  // What others have written into its slots counts when it is read.
  std::vector<std::uint32_t> memory = {};
  // The resources of each rank's copy engines, for classes that have them: an engine moves one slice at a time, which
  // begins `message_s` after the engine takes it up. The peers of a rank are dealt to its engines in turn.
  std::vector<std::vector<std::uint32_t>> engines = {};
  double submit_s = 0;  // of a rank's processor for each copy: it submits them one after the other, from the first on
  // Processors that execute the threadblocks of their ranks in turn. The processor of rank r is r modulo their number
  // if ranks are dealt out; otherwise each has the same number of consecutive ranks. 0: every threadblock has its own.
  std::uint32_t cores = 0;
  bool cores_dealt = false;
  double core_switch_s = 0;  // of a switch from one rank to another
};

class Machine {
 public:
  struct Route {
    std::uint32_t link_class = 0;
    std::span<const std::uint32_t> out;
    std::span<const std::uint32_t> into;
  };

  // Refuses indices and numbers out of range.
  static Result<Machine> create(MachineData data);

  // The route from `src` to `dst`. If ranks have several ports to a fabric, channel c takes port c modulo their number.
  std::optional<Route> route(std::uint32_t src, std::uint32_t dst, std::uint32_t channel) const;

  // The ports of a rank to a fabric, in their order.
  struct Access {
    std::uint32_t fabric;
    std::vector<std::uint32_t> ports;
  };
  const std::vector<Access>& access(std::uint32_t rank) const { return access_[rank]; }  // by rising fabric
  const Link* link(std::uint32_t src, std::uint32_t dst) const;                          // null: there is none

  const MachineData& data() const { return data_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(data_.node_of.size()); }

 private:
  MachineData data_;
  std::unordered_map<std::uint64_t, std::uint32_t> links_;  // (src, dst) -> index
  std::vector<std::vector<Access>> access_;                 // per rank
};

}  // namespace gc3::sim
