// The rank of this process in its job, as the launcher set it: torchrun, mpirun of Open MPI or MPICH, srun, or a
// script.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "gc3/base/knobs.h"
#include "gc3/base/result.h"

namespace gc3 {

// A rank among the ranks of this host, and how many these are.
struct Place {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
};

struct Launch {
  std::uint32_t rank = 0;
  std::uint32_t size = 1;
  // The same on all ranks of a job, and different for jobs that run on a host at the same time. Empty: the launcher
  // sets no name.
  std::string job;
  // The place on this host of a rank of a job of several hosts. It says only for whom the ranks of a host wait:
  // whether they share memory shows when they hand it over.
  std::optional<Place> here = {};
  std::string here_job = {};  // the name of these ranks' own meeting
  // How the hosts of such a job find rank 0.
  enum class Way : std::uint8_t {
    address,  // it listens at `address`, "host:port"
    store,  // it publishes its address in PyTorch's store, which listens at `store`; `address` where there is no torch
    pmi,    // it publishes its address through PMI-1, at the descriptor `pmi`
    pmix,   // through PMIx
  };
  Way way = Way::address;
  std::string address = {};
  std::string store = {};
  std::uint32_t pmi = 0;
  std::string pmix_folder = {};  // where the launcher has its libraries; empty: it does not say
};

// Takes the first complete pair of rank and size; docs/processes.md gives the order of the launchers' variables.
Result<Launch> read_launch(const Environment& environment);

// The place by which this process is pinned to cores; none: it is not pinned. `wish`: "0", "1" or "auto" (GC3_PIN), of
// which the last one pins unless a framework owns the process: torchrun has started it, or `framework`. A framework's
// threads would inherit the cores. The place is the launcher's local rank; only where no launcher gives one, it is
// `group`, the rank in the group that is made, which may be a part of the processes.
Result<std::optional<Place>> choose_place(std::string_view wish, const Environment& environment, bool framework,
                                          const Place& group);

}  // namespace gc3
