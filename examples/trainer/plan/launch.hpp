#pragma once

#include "trainer/plan/endpoint.hpp"
#include "trainer/plan/settings.hpp"

#include <cstddef>
#include <functional>
#include <optional>

namespace syncnorm::train {

/// What a launcher that starts one command line several times tells each
/// process.
struct launch {
  /// Processes in all.
  std::size_t size = 1;
  /// This one's number, from 0.
  std::size_t rank = 0;
  /// This one's number among those of its machine.
  std::size_t local_rank = 0;
  /// Where the process of rank 0 serves.
  endpoint where;
  /// The variable that names that host; null if none does.
  const char* host_variable = nullptr;
};

/// Looks up a variable of the environment: its value, or null.
using environment = std::function<const char*(const char*)>;

/// Reads what launchers like torchrun (`WORLD_SIZE`, `RANK`, `LOCAL_RANK`),
/// Open MPI's mpirun (`OMPI_COMM_WORLD_SIZE`, `..._RANK`, `..._LOCAL_RANK`),
/// the one of MPICH and Intel MPI (`PMI_SIZE`, `PMI_RANK`, `MPI_LOCALRANKID`)
/// and Slurm's srun (`SLURM_STEP_NUM_TASKS`, `SLURM_PROCID`, `SLURM_LOCALID`)
/// set. `MASTER_ADDR` and `MASTER_PORT` say where rank 0 serves; if left out,
/// that is the first node of Slurm's step, else this machine, and port 29400.
/// If torchrun has taken that port for itself, it is the next one.
/// @returns nothing if no launcher started this process, or if one started it
///          alone.
/// @throws failure that names a variable that is missing or not a number.
[[nodiscard]] std::optional<launch> find_launch(const environment& variable);

/// Makes `options` those of one process among several: rank 0 serves, the
/// others join.
void apply(const launch& from, settings& options);

} // namespace syncnorm::train
