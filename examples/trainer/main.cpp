// syncnorm-train: trains an image classifier on several devices at once, with
// synchronized batch norm. docs/trainer.md is its manual.

#include "trainer/failure.hpp"
#include "trainer/input/dataset.hpp"
#include "trainer/model/archive.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/output/atomic_file.hpp"
#include "trainer/output/checkpoint_lock.hpp"
#include "trainer/output/complaint.hpp"
#include "trainer/output/output_file.hpp"
#include "trainer/output/progress.hpp"
#include "trainer/output/report.hpp"
#include "trainer/plan/devices.hpp"
#include "trainer/plan/run_identity.hpp"
#include "trainer/plan/run_state.hpp"
#include "trainer/run/config.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/replica.hpp"
#include "trainer/run/stop_signal.hpp"
#include "trainer/run/this_machine.hpp"
#include "trainer/run/trainer.hpp"
#include "trainer/run/worker.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>
#include <new>
#include <tuple>

namespace {

using namespace syncnorm;
using namespace syncnorm::train;

std::vector<device> devices_of(const settings& options) {
  if (!options.devices.empty())
    return parse_devices(options.devices);
  auto gpus = engine::count_gpus();
  if (options.local_rank < 0)
    return default_devices(gpus, usable_cores().size());
  return {launched_device(gpus, options.local_rank)};
}

void require_enough_samples(const settings& options, std::size_t replicas) {
  if (options.batch < replicas)
    throw failure{fmt::format("--batch: expected {} or more, one sample for "
                              "each replica, found {}",
                              replicas, options.batch)};
}

/// What a process brings into a run.
struct own_part {
  dataset_ptr data;
  std::vector<device> devices;
  std::vector<replica_actor> replicas;
  std::string identity;
  /// Only in the process that writes the checkpoint.
  std::unique_ptr<checkpoint_lock> lock;
};

/// Reserves the folder for this run; null without one.
std::unique_ptr<checkpoint_lock> prepare_checkpoint(const settings& options,
                                                    const dataset& data) {
  (void) find_state(options, data);
  if (options.checkpoint.empty())
    return nullptr;
  auto lock = std::make_unique<checkpoint_lock>(options.checkpoint);
  require_replaceable(output_file("--checkpoint", checkpoint_file(options)));
  return lock;
}

own_part make_own_part(caf::actor_system& system, const settings& options) {
  own_part result;
  result.data = load_dataset(options.data);
  result.devices = devices_of(options);
  require_enough_samples(options, result.devices.size());
  // Before the first replica is made, so that nothing is computed in vain.
  if (options.join.empty()) {
    result.lock = prepare_checkpoint(options, *result.data);
    require_report_files(options);
  }
  std::uint64_t fingerprint = 0;
  result.replicas = spawn_replicas(system, options, result.devices, result.data,
                                   &fingerprint);
  result.identity = run_identity(options, *result.data, fingerprint);
  return result;
}

std::unique_ptr<fleet> make_fleet(caf::actor_system& system,
                                  const settings& options, const own_part& own,
                                  progress_display& display) {
  if (options.serve.empty())
    return std::make_unique<fleet>(system, options, own.replicas);
  return std::make_unique<fleet>(
      system, options, own.replicas, own.identity,
      [&](const std::string& line) { display.note(line); }, stop_requested);
}

std::string where_text(const own_part& own, fleet& processes) {
  if (processes.size() == 1)
    return list_devices(own.devices);
  return fmt::format("{} replicas in {} processes", processes.replicas().size(),
                     processes.size());
}

void train_model(caf::actor_system& system, const settings& options) {
  auto own = make_own_part(system, options);
  progress_display display{stdout};
  catch_stop_signals();
  auto processes = make_fleet(system, options, own, display);
  try {
    require_enough_samples(options, processes->replicas().size());
    display.note(fmt::format(
        "{}, {}, {} norm on {}: {} training and {} held-out images, batches of "
        "{}",
        to_string(options.model), to_string(options.precision),
        to_string(options.norm), where_text(own, *processes),
        own.data->training.size(), own.data->held_out.size(), options.batch));
    trainer coordinator{options, *own.data, *processes, display,
                        stop_requested};
    processes->end(true, coordinator.run());
  } catch (const std::exception& x) {
    processes->end(false, first_line(x.what()));
    throw;
  }
}

void join_run(caf::actor_system& system, const settings& options) {
  auto own = make_own_part(system, options);
  progress_display display{stdout};
  catch_stop_signals();
  application app{process_name(), options.rank, own.identity, own.replicas};
  auto note = [&](const std::string& line) {
    display.note(fmt::format("{} with {}", line, list_devices(own.devices)));
  };
  display.note(take_part(system, options, app, note, stop_requested));
}

/// Model, norm and precision are the checkpoint's own.
settings settings_of_checkpoint(settings options, const std::string& content,
                                const dataset& data) {
  auto state = parse_state(unpack_run(content, options.eval), options.eval);
  options.model = parse_model(state.model);
  options.norm = parse_norm(state.norm);
  options.precision = parse_precision(state.precision);
  options.batch = state.batch;
  options.seed = state.seed;
  auto expected = initial_state(options, data);
  // Any data whose images have the right shape will do.
  expected.fingerprint = state.fingerprint;
  require_same_run(state, expected, options.eval);
  return options;
}

void evaluate_model(caf::actor_system& system, const settings& given) {
  auto data = load_dataset(given.data);
  // Read once: a pipe cannot be read again.
  auto content = read_whole(given.eval);
  auto options = settings_of_checkpoint(given, content, *data);
  auto devices = devices_of(options);
  replica_group replicas{system,
                         spawn_replicas(system, options, devices, data)};
  replicas.assume(unpack(content, options.eval, options, data->training.shape));
  auto result = replicas.evaluate(data->held_out.size(), replicas.size());
  auto count = static_cast<double>(result.samples);
  fmt::print("held-out accuracy {:.2f} % ({} of {}), loss {:.6f}\n",
             100 * static_cast<double>(result.correct) / count, result.correct,
             result.samples, result.loss / count);
}

/// An opened file takes the number of a closed stream, and would get what is
/// printed to that stream.
void keep_standard_streams_apart() {
  for (int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (::fcntl(stream, F_GETFD) == -1)
      // Reading gives nothing; what is written is lost, with an error.
      std::ignore = ::open("/dev/null", O_RDONLY);
}

/// Runs `f`; if it fails, prints why. Returns the exit status.
template <class F>
int status_of(F f) {
  try {
    f();
    return 0;
  } catch (const std::filesystem::filesystem_error& x) {
    std::fflush(stdout);
    complain(fmt::format("{}: {}", x.path1().string(), x.code().message()));
  } catch (const std::bad_alloc&) {
    std::fflush(stdout);
    complain("there is not enough memory");
  } catch (const std::exception& x) {
    std::fflush(stdout);
    complain(first_line(x.what()));
  }
  return 1;
}

/// Returns `status`, but not 0 if something that was printed is lost.
int status_of_output(int status) {
  auto is_lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0;
  if (!is_lost || status != 0)
    return status;
  complain("standard output: cannot be written");
  return 1;
}

void run(int argc, char** argv) {
  compat::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>();
  config configuration;
  auto options = configuration.read(argc, argv);
  if (!options)
    return;
  caf::actor_system system{configuration};
  auto is_worker = !options->join.empty();
  auto status = status_of_output(status_of([&] {
    if (is_worker)
      join_run(system, *options);
    else if (options->eval.empty())
      train_model(system, *options);
    else
      evaluate_model(system, *options);
  }));
  // A replica may be waiting for a process that is gone, or may never come
  // back. All files are closed.
  if (is_worker || status != 0)
    std::_Exit(status);
}

} // namespace

int main(int argc, char** argv) {
  keep_freed_memory();
  keep_standard_streams_apart();
  ignore_write_signals();
  return status_of_output(status_of([&] { run(argc, argv); }));
}
