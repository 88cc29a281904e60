#include "gc3/base/launch.h"

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
  const char* local_size;  // ranks on this host
};

// RANK and WORLD_SIZE come first: a script that sets them inside another launcher's job means its own ranks.
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"},
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"},
    {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr},
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
    {"SLURM_LOCALID", "SLURM_STEP_NUM_TASKS"},
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

// All ranks run on one host, so all names of this host are treated as one name.
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
    const std::string_view here = text(environment, launcher.local_size);
    if (!here.empty() && here != size) {
      return Diagnostic(ErrorCode::NotMet, std::string(here) + " of " + std::string(size) +
                                               " ranks run on this host; the processes engine joins ranks of one host");
    }
    launch.job = named(environment,
                       text(environment, "MASTER_PORT").empty() ? std::span<const char* const>(kByLauncher) : kByPort);
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
    const std::string_view all = text(environment, size);
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
