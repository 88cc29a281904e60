// What a rank can use to send messages to other hosts: each transport of base/transport_kind.h says it for itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "gc3/base/result.h"
#include "gc3/base/transport_kind.h"
#include "gc3/runtime/core/meeting/network.h"
#include "gc3/transport/transport.h"

namespace gc3::transport {

struct Offer {
  // `host`: the numeric address by which this host has met the others. `secret`: of the communicator.
  using Make = std::function<Result<std::unique_ptr<Transport>>(std::uint32_t rank, const std::string& host,
                                                                std::string secret)>;
  Make make = {};            // none: this rank cannot use it
  std::string why_not = {};  // empty: nobody has asked for it
};

// `first`: the first host of the job. A name of base/transport_kind.h without such a function does not link.
#define GC3_TRANSPORT(name) Result<Offer> offer_##name(const std::optional<core::Endpoint>& first);
GC3_TRANSPORTS(GC3_TRANSPORT)
#undef GC3_TRANSPORT

}  // namespace gc3::transport
