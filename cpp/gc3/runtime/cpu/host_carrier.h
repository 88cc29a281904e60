// Connections to other hosts for an engine that runs beside the calls of a communicator, on threads of its own.
#pragma once

#include <memory>

#include "gc3/runtime/cpu/process_program.h"
#include "gc3/transport/carrier.h"

namespace gc3::cpu {

// Apart from those of the communicator's own calls. It may outlive the communicator's close(), which is then the
// problem that it names. Null if all ranks are on one host, or the communicator is closed.
std::unique_ptr<transport::Carrier> make_carrier(const std::shared_ptr<Membership>& members);

}  // namespace gc3::cpu
