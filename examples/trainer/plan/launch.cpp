#include "trainer/plan/launch.hpp"

#include "trainer/failure.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <string_view>

namespace syncnorm::train {

namespace {

constexpr std::uint64_t default_port = 29400;

/// The variables of one kind of launcher.
struct launcher {
  const char* size;
  const char* rank;
  const char* local_rank;
  /// Does not count without the last one.
  bool whole = false;
};

// Slurm sets other variables for a job's script, which is one process. Slurm
// may start MPICH's launcher, once per node, and sets some of MPICH's
// variables.
constexpr std::array launchers{
    launcher{"WORLD_SIZE", "RANK", "LOCAL_RANK"},
    launcher{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK",
             "OMPI_COMM_WORLD_LOCAL_RANK"},
    launcher{"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID", true},
    launcher{"SLURM_STEP_NUM_TASKS", "SLURM_PROCID", "SLURM_LOCALID"},
    launcher{"PMI_SIZE", "PMI_RANK", "MPI_LOCALRANKID"},
};

std::uint64_t number_of(const char* name, const char* text, std::uint64_t least,
                        std::uint64_t most) {
  std::string_view all{text == nullptr ? "" : text};
  std::uint64_t result = 0;
  const auto* end = all.data() + all.size();
  auto [rest, code] = std::from_chars(all.data(), end, result);
  if (code != std::errc{} || rest != end || result < least || result > most)
    throw failure{fmt::format(
        "{}: expected a number from {} to {}, found {}", name, least, most,
        text == nullptr ? "none" : fmt::format("\"{}\"", all))};
  return result;
}

/// Throws unless `host`, as that variable gives it, may be a name or an
/// address; removes the brackets of an IPv6 address.
void require_host(const char* variable, const std::string& found,
                  std::string& host) {
  if (host.starts_with('[') && host.ends_with(']'))
    host = host.substr(1, host.size() - 2);
  if (!is_host(host))
    throw failure{fmt::format("{}: expected the name or address of a host, "
                              "without a port, found \"{}\"",
                              variable, found)};
}

/// The first in Slurm's list: `row1node7-ib` of `row[1-2]node[7,9-12]-ib,gpu1`.
std::string first_node(std::string_view list) {
  std::string result;
  for (std::size_t i = 0; i < list.size() && list[i] != ',';) {
    if (list[i] != '[') {
      result += list[i++];
      continue;
    }
    auto inside = list.substr(i + 1);
    result += inside.substr(0, inside.find_first_of(",-]"));
    auto end = inside.find(']');
    i = end == std::string_view::npos ? list.size() : i + end + 2;
  }
  return result;
}

void find_host(const environment& variable, bool is_slurm, launch& result) {
  const auto* address = variable("MASTER_ADDR");
  const auto* nodes = variable("SLURM_STEP_NODELIST");
  if (address != nullptr && *address != '\0') {
    result.host_variable = "MASTER_ADDR";
    result.where.host = address;
  } else if (is_slurm && nodes != nullptr) {
    result.host_variable = "SLURM_STEP_NODELIST";
    result.where.host = first_node(nodes);
  } else {
    result.where.host = "127.0.0.1";
  }
  if (result.host_variable != nullptr)
    require_host(result.host_variable, variable(result.host_variable),
                 result.where.host);
}

std::uint16_t find_port(const environment& variable) {
  const auto* port = variable("MASTER_PORT");
  auto number = port == nullptr || *port == '\0'
                    ? default_port
                    : number_of("MASTER_PORT", port, 1, 65535);
  // torchrun itself serves at its port.
  const auto* store = variable("TORCHELASTIC_USE_AGENT_STORE");
  if (store != nullptr && std::string_view{store} == "True")
    number = number == 65535 ? number - 1 : number + 1;
  return static_cast<std::uint16_t>(number);
}

/// The launcher whose variables are set; else the one of which only the number
/// of processes is set. torchrun's are also set by hand: a number of one may be
/// left from something else.
const launcher* find_launcher(const environment& variable) {
  const launcher* alone = nullptr;
  for (const auto& by : launchers) {
    if (variable(by.size) == nullptr || variable(by.rank) == nullptr
        || (by.whole && variable(by.local_rank) == nullptr))
      continue;
    if (&by != &launchers.front() || variable(by.size) != std::string_view{"1"})
      return &by;
    alone = &by;
  }
  if (alone != nullptr)
    return alone;
  for (const auto& by : launchers)
    if (variable(by.size) != nullptr)
      return &by;
  return nullptr;
}

} // namespace

std::optional<launch> find_launch(const environment& variable) {
  const auto* by = find_launcher(variable);
  if (by == nullptr)
    return std::nullopt;
  // More processes than this are a typing error.
  constexpr std::uint64_t limit = 100'000;
  launch result;
  result.size = number_of(by->size, variable(by->size), 1, limit);
  if (result.size == 1)
    return std::nullopt;
  result.rank = number_of(by->rank, variable(by->rank), 0, result.size - 1);
  if (const auto* local = variable(by->local_rank))
    result.local_rank = number_of(by->local_rank, local, 0, result.size - 1);
  find_host(variable, std::string_view{by->rank}.starts_with("SLURM"), result);
  result.where.port = find_port(variable);
  return result;
}

void apply(const launch& from, settings& options) {
  if (options.workers != 0)
    throw failure{
        fmt::format("--workers: expected none under a launcher, which "
                    "started {} processes, found {}",
                    from.size, options.workers)};
  options.rank = static_cast<std::int64_t>(from.rank);
  options.local_rank = static_cast<std::int64_t>(from.local_rank);
  if (from.rank == 0) {
    options.serve = to_string(from.where);
    options.workers = from.size - 1;
  } else {
    options.join = to_string(from.where);
  }
}

} // namespace syncnorm::train
