// Where rank 0 listens for the leaders of other hosts.
#include <algorithm>
#include <memory>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/runtime/core/meeting/network.h"
#include "gc3/runtime/core/meeting/rendezvous.h"

namespace gc3::core {

Result<std::string> Route::listen(const std::string& towards, std::uint16_t port) {
  std::optional<Endpoint> to;
  if (!towards.empty()) {
    GC3_ASSIGN(const std::vector<Endpoint> all, resolve(towards));
    const auto own = std::ranges::find_if(all, is_of_this_host);
    to = own != all.end() ? *own : all.front();
  }
  GC3_ASSIGN(const Interface at, choose_interface(network, to));
  if (to && network.empty() && !is_of_this_host(*to)) {
    return Diagnostic(ErrorCode::NotMet, to->str() + " is to be the address of rank 0, but rank 0 runs here, on " +
                                             at.str() +
                                             "; set MASTER_ADDR or GC3_RENDEZVOUS to its host, or GC3_NETWORK");
  }
  GC3_ASSIGN(FileDescriptor socket, listen_on(at, port));
  listener = std::make_shared<FileDescriptor>(std::move(socket));
  interface = at.str();
  address = address_at(listener->get()).str();
  return address;
}

Result<Route> route_by_address(const Launch& launch, const std::string& network) {
  if (launch.address.empty()) {
    return Diagnostic(ErrorCode::NoLauncher,
                      "the ranks run on several hosts: set GC3_RENDEZVOUS=HOST:PORT to an address of rank 0's host");
  }
  Route route{launch.here.value_or(Place()), launch.here_job, launch.address, network};
  if (launch.rank == 0) {
    GC3_ASSIGN(const std::vector<Endpoint> at, resolve(launch.address));
    GC3_CHECK(route.listen(launch.address, at.front().port()));
  }
  return route;
}

}  // namespace gc3::core
