#include "gc3/base/launch.h"

#include <algorithm>
#include <charconv>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"

namespace gc3 {
namespace {

struct Launcher {
  const char* rank;
  const char* size;
  const char* local_rank;  // among the ranks on this host
  const char* local_size;
};

// RANK and WORLD_SIZE come first: a script that sets them inside another launcher's job means its own ranks.
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", nullptr},  // see slurm_tasks
};
// The port identifies the job; torchrun keeps it when it restarts the ranks of a failed job.
constexpr const char* kByPort[] = {"MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"};
constexpr const char* kByLauncher[] = {"OMPI_MCA_ess_base_jobid", "PMIX_NAMESPACE", "PMI_PORT", "SLURM_JOB_ID",
                                       "SLURM_STEP_ID"};

// The rank on this host, and how many there are.
constexpr std::pair<const char*, const char*> kPlaces[] = {
    {"LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"},  // of all nodes; see slurm_tasks
};

std::string_view text(const Environment& environment, const char* variable) {
  const char* const value = variable == nullptr ? nullptr : environment(variable);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

Result<std::uint32_t> number(std::string_view value, const char* variable) {
  std::uint32_t parsed = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), parsed);
  if (error != std::errc() || end != value.data() + value.size()) {
    return Diagnostic(ErrorCode::BadOption, std::string(variable) + "='" + std::string(value) +
                                                "' in the environment: expected a whole number from 0");
  }
  return parsed;
}

// Ranks of one host may name it differently.
std::string_view address_named(std::string_view value) {
  for (const std::string_view name : {"localhost", "localhost.localdomain", "ip6-localhost", "::1", "[::1]"}) {
    if (value == name) return "localhost";
  }
  const bool numeric = value.find_first_not_of("0123456789.") == std::string_view::npos;
  return numeric && value.starts_with("127.") ? "localhost" : value;
}

std::string named(const Environment& environment, std::span<const char* const> variables) {
  std::string job;
  for (const char* variable : variables) {
    const bool address = std::string_view(variable) == "MASTER_ADDR";
    const std::string_view value = address ? address_named(text(environment, variable)) : text(environment, variable);
    if (!value.empty()) job += std::string(variable) + "=" + std::string(value) + ";";
  }
  return job;
}

// The tasks of this node, of a list such as "2(x3),1": two on each of three nodes, one on the fourth. Empty: not said.
std::string slurm_tasks(const Environment& environment) {
  std::string_view list = text(environment, "SLURM_STEP_TASKS_PER_NODE");
  if (list.empty()) list = text(environment, "SLURM_TASKS_PER_NODE");
  const Result<std::uint32_t> node = number(text(environment, "SLURM_NODEID"), "SLURM_NODEID");
  if (!node.ok()) return {};
  for (std::uint32_t left = node.value(); !list.empty();) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    const std::size_t times = entry.find("(x");
    std::uint32_t nodes = 1;
    if (times != std::string_view::npos) {
      const std::string_view count = entry.substr(times + 2);
      std::from_chars(count.data(), count.data() + count.size(), nodes);
    }
    if (left < nodes) return std::string(entry.substr(0, times));
    left -= nodes;
  }
  return {};
}

// The first node of a list such as "node[08-11,20],other".
std::string first_node(std::string_view list) {
  const std::size_t open = list.find_first_of("[,");
  if (open == std::string_view::npos || list[open] == ',') return std::string(list.substr(0, open));
  const std::string_view numbers = list.substr(open + 1);
  return std::string(list.substr(0, open)) + std::string(numbers.substr(0, numbers.find_first_of("-,]")));
}

constexpr std::uint32_t kFirstPort = 20000;  // of those for jobs of srun, which gives none
constexpr std::uint32_t kPorts = 10000;

// How the first ranks of the hosts find rank 0, by the variables that are most particular.
Status find_rank0(Launch& launch, const Environment& environment) {
  const std::string by_hand(text(environment, "GC3_RENDEZVOUS"));
  if (!by_hand.empty()) {
    const std::size_t colon = std::min(by_hand.rfind(':'), by_hand.size());
    const Result<std::uint32_t> port =
        number(std::string_view(by_hand).substr(std::min(colon + 1, by_hand.size())), "");
    if (colon == 0 || !port.ok() || port.value() == 0 || port.value() >= 1U << 16U) {
      return Diagnostic(ErrorCode::BadOption, "GC3_RENDEZVOUS='" + by_hand + "' in the environment: expected " +
                                                  "host:port with a port from 1 to 65535");
    }
    launch.address = by_hand;
    return {};
  }
  const std::string host(text(environment, "MASTER_ADDR"));
  const std::string_view port = text(environment, "MASTER_PORT");
  std::uint32_t own_port = 0;
  if (const std::string_view told = text(environment, "GC3_PORT"); !told.empty()) {
    GC3_ASSIGN(own_port, number(told, "GC3_PORT"));
  }
  if (!host.empty() && !port.empty()) {
    GC3_ASSIGN(const std::uint32_t taken, number(port, "MASTER_PORT"));
    // The launcher itself, or a library, may listen at MASTER_PORT.
    launch.address = host + ":" + std::to_string(own_port != 0 ? own_port : taken + 1);
    launch.store = host + ":" + std::string(port);
    if (text(environment, "TORCHELASTIC_USE_AGENT_STORE") == "True" && own_port == 0) launch.way = Launch::Way::store;
    return {};
  }
  if (const std::string_view descriptor = text(environment, "PMI_FD"); !descriptor.empty()) {
    GC3_ASSIGN(launch.pmi, number(descriptor, "PMI_FD"));
    launch.way = Launch::Way::pmi;
    return {};
  }
  if (!text(environment, "PMIX_NAMESPACE").empty()) {
    launch.way = Launch::Way::pmix;
    launch.pmix_folder = text(environment, "OMPI_LIBDIR_LOC");
    const std::string_view prefix = text(environment, "PMIX_PREFIX");  // mpirun gives it to ranks of its own host only
    if (launch.pmix_folder.empty() && !prefix.empty()) launch.pmix_folder = std::string(prefix) + "/lib";
    return {};
  }
  std::string_view nodes = text(environment, "SLURM_STEP_NODELIST");
  if (nodes.empty()) nodes = text(environment, "SLURM_JOB_NODELIST");
  if (!nodes.empty()) {
    std::uint32_t job = 0;
    if (own_port == 0) {
      GC3_ASSIGN(job, number(text(environment, "SLURM_JOB_ID"), "SLURM_JOB_ID"));
    }
    launch.address = first_node(nodes) + ":" + std::to_string(own_port != 0 ? own_port : kFirstPort + job % kPorts);
    return {};
  }
  return Diagnostic(
      ErrorCode::NoLauncher,
      "the ranks run on several hosts, and nothing says where rank 0 is: set GC3_RENDEZVOUS=HOST:PORT, or "
      "MASTER_ADDR and MASTER_PORT");
}

// Where the rank is among those of its host, if the job has several hosts.
Status find_place(Launch& launch, const Environment& environment, const Launcher& launcher) {
  if (launch.size == 1) return {};
  const bool slurm = launcher.local_size == nullptr;
  const char* const variable = slurm ? "SLURM_TASKS_PER_NODE" : launcher.local_size;
  const std::string here = slurm ? slurm_tasks(environment) : std::string(text(environment, variable));
  const std::string_view place = text(environment, launcher.local_rank);
  const bool by_hand = !text(environment, "GC3_RENDEZVOUS").empty();
  if (here.empty() && !by_hand) return {};
  Place found;  // alone, unless the launcher says otherwise
  if (!here.empty()) {
    GC3_ASSIGN(found.size, number(here, variable));
    if (found.size >= launch.size) return {};
    if (place.empty() && found.size > 1) {
      return Diagnostic(ErrorCode::BadOption, std::string(variable) + "=" + here + " is set and " +
                                                  launcher.local_rank + " is not: ranks of several hosts need both");
    }
    if (!place.empty()) {
      GC3_ASSIGN(found.rank, number(place, launcher.local_rank));
    }
    if (found.rank >= found.size) {
      return Diagnostic(ErrorCode::BadOption, std::string(launcher.local_rank) + "=" + std::string(place) +
                                                  " is no rank of " + variable + "=" + here);
    }
  }
  launch.here = found;
  // Several agents of torchrun may run on one machine, each with ranks of its own.
  launch.here_job = launch.job + "here=" + std::string(text(environment, "GROUP_RANK")) + ";";
  if (found.size == 1) launch.here_job += "rank=" + std::to_string(launch.rank) + ";";
  return find_rank0(launch, environment);
}

}  // namespace

Result<Launch> read_launch(const Environment& environment) {
  std::string half;  // of a pair that is not complete
  for (const Launcher& launcher : kLaunchers) {
    const std::string_view rank = text(environment, launcher.rank);
    const std::string_view size = text(environment, launcher.size);
    if (rank.empty() || size.empty()) {
      if (half.empty() && !rank.empty()) half = std::string(launcher.rank) + " is set and " + launcher.size + " is not";
      if (half.empty() && !size.empty()) half = std::string(launcher.size) + " is set and " + launcher.rank + " is not";
      continue;
    }
    Launch launch;
    GC3_ASSIGN(launch.rank, number(rank, launcher.rank));
    GC3_ASSIGN(launch.size, number(size, launcher.size));
    if (launch.rank >= launch.size) {
      return Diagnostic(ErrorCode::BadOption, std::string(launcher.rank) + "=" + std::string(rank) + " is no rank of " +
                                                  launcher.size + "=" + std::string(size));
    }
    launch.job = named(environment,
                       text(environment, "MASTER_PORT").empty() ? std::span<const char* const>(kByLauncher) : kByPort);
    GC3_CHECK(find_place(launch, environment, launcher));
    return launch;
  }
  if (!half.empty()) return Diagnostic(ErrorCode::NoLauncher, half);
  return Diagnostic(ErrorCode::NoLauncher, "neither RANK and WORLD_SIZE nor the variables of mpirun or srun are set");
}

Result<std::optional<Place>> choose_place(std::string_view wish, const Environment& environment, bool framework,
                                          const Place& group) {
  if (wish != "0" && wish != "1" && wish != "auto") {
    return Diagnostic(ErrorCode::BadOption,
                      "GC3_PIN='" + std::string(wish) + "' in the environment: expected 0, 1 or auto");
  }
  const bool owned = framework || !text(environment, "TORCHELASTIC_RUN_ID").empty();
  if (wish == "0" || (wish == "auto" && owned)) return std::optional<Place>();
  for (const auto& [rank, size] : kPlaces) {
    const std::string_view local = text(environment, rank);
    const std::string here = rank == std::string_view("SLURM_LOCALID") ? slurm_tasks(environment) : "";
    const std::string_view all = here.empty() ? text(environment, size) : here;
    if (local.empty() || all.empty()) continue;
    Place place;
    GC3_ASSIGN(place.rank, number(local, rank));
    GC3_ASSIGN(place.size, number(all, size));
    if (place.rank >= place.size) {
      return Diagnostic(ErrorCode::BadOption, std::string(rank) + "=" + std::string(local) + " is no rank of " + size +
                                                  "=" + std::string(all));
    }
    return std::optional(place);
  }
  return std::optional(group);
}

}  // namespace gc3
