// The machine as the simulator sees it: what transfers share, and the way from one rank to another.
//
// A route takes up the resources of a direct link, or those of the two ports of the first fabric that joins the ranks.
// Rates are those that one protocol reaches: whoever builds a machine has applied efficiencies already.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "gc3/base/ids.h"
#include "gc3/base/result.h"

namespace gc3::sim {

using Time = std::int64_t;  // picoseconds: sums do not depend on their order, so every run gives the same result

inline constexpr Time kPicosecondsPerSecond = 1'000'000'000'000;
inline constexpr double kLongestSeconds = 1e6;  // what a single number may be; sums of many still fit a Time

constexpr Time picoseconds(double seconds) {
  return static_cast<Time>(seconds * static_cast<double>(kPicosecondsPerSecond) + 0.5);
}
constexpr double seconds(Time t) { return static_cast<double>(t) / static_cast<double>(kPicosecondsPerSecond); }

// Something of limited bandwidth that transfers share, in turn.
struct Resource {
  double bytes_per_s = 0;  // of data, not counting flags
  double message_s = 0;    // that every slice takes besides its bytes
};

// A kind of wire.
struct LinkClass {
  double latency_s = 0;               // from the last byte sent to the last byte usable
  double connection_bytes_per_s = 0;  // most that one connection carries; 0: no limit
  double connection_message_s = 0;    // that every slice takes of its connection
  bool staged = false;                // the threadblock hands its slice over and goes on (a proxy sends it)
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
  bool across_nodes = false;  // joins ranks of different nodes only
  std::vector<Port> ports;
};

struct MachineData {
  std::vector<std::uint32_t> node_of;  // of each rank
  std::vector<Resource> resources;
  std::vector<LinkClass> classes;
  std::vector<Link> links;
  std::vector<Fabric> fabrics;
  // Processors that execute the threadblocks of their ranks in turn: the processor of rank r is r modulo their number
  // if ranks are dealt out, else each has as many ranks in a row as the others. 0: every threadblock has its own.
  std::uint32_t cores = 0;
  bool cores_dealt = false;
  double core_switch_s = 0;  // of a processor that turns from one rank to another
};

class Machine {
 public:
  struct Route {
    std::uint32_t link_class = 0;
    std::span<const std::uint32_t> out;
    std::span<const std::uint32_t> into;
  };

  // Refuses indices out of range and numbers that are not sensible.
  static Result<Machine> create(MachineData data);

  // The way from `src` to `dst`; where ranks have several ports to a fabric, channel c takes port c modulo their
  // number.
  std::optional<Route> route(std::uint32_t src, std::uint32_t dst, std::uint32_t channel) const;

  const MachineData& data() const { return data_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(data_.node_of.size()); }

 private:
  // The ports of a rank to a fabric, in their order.
  struct Access {
    std::uint32_t fabric;
    std::vector<std::uint32_t> ports;
  };

  MachineData data_;
  std::unordered_map<std::uint64_t, std::uint32_t> links_;  // (src, dst) -> index
  std::vector<std::vector<Access>> access_;                 // per rank, by rising fabric
};

}  // namespace gc3::sim
