// What an engine that runs beside the calls of a communicator needs to send messages to ranks on other hosts: a
// transport of its own, and the reason if messages do not arrive any more.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/transport/transport.h"

namespace gc3::transport {

class Carrier {
 public:
  Carrier() = default;
  virtual ~Carrier() = default;
  Carrier(const Carrier&) = delete;
  Carrier& operator=(const Carrier&) = delete;

  // By rank; those of one host have the same number.
  virtual const std::vector<std::uint32_t>& hosts() const = 0;
  // Collective: connects this rank to `peers`. While it waits it calls `progress`, which calls that of the transport.
  virtual Status connect(const std::vector<std::uint32_t>& peers, const std::function<bool()>& progress,
                         const std::function<bool()>& interrupted) = 0;
  // Once connect() has been called.
  virtual Transport& transport() = 0;
  // Why calls of this rank will not end; none: they may. From any thread.
  virtual std::optional<Diagnostic> problem() = 0;
  virtual std::string describe() const = 0;
};

}  // namespace gc3::transport
