// syncnorm-train: trains an image classifier on several devices at once, with
// synchronized batch norm. docs/trainer.md is its manual.

#include "trainer/failure.hpp"
#include "trainer/input/dataset.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/output/atomic_file.hpp"
#include "trainer/output/progress.hpp"
#include "trainer/plan/devices.hpp"
#include "trainer/plan/run_state.hpp"
#include "trainer/run/config.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/replica.hpp"
#include "trainer/run/stop_signal.hpp"
#include "trainer/run/trainer.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <thread>

namespace {

using namespace syncnorm;
using namespace syncnorm::train;

std::vector<device> devices_of(const settings& options) {
  auto devices = options.devices.empty() ? default_devices(
                     engine::count_gpus(), std::thread::hardware_concurrency())
                                         : parse_devices(options.devices);
  if (options.eval.empty() && options.batch < devices.size())
    throw failure{fmt::format("--batch: expected {} or more, one sample for "
                              "each replica, found {}",
                              devices.size(), options.batch)};
  return devices;
}

void train_model(caf::actor_system& system, const settings& options) {
  auto data = load_dataset(options.data);
  auto devices = devices_of(options);
  // Before the first replica is made, that nothing is computed in vain.
  (void) find_state(options, *data);
  progress_display display{stdout};
  replica_group replicas{system,
                         spawn_replicas(system, options, devices, data)};
  display.note(fmt::format(
      "{}, {}, {} norm on {}: {} training and {} held-out images, batches of "
      "{}",
      to_string(options.model), to_string(options.precision),
      to_string(options.norm), list_devices(devices), data->training.size(),
      data->held_out.size(), options.batch));
  catch_stop_signals();
  trainer{options, *data, replicas, display, stop_requested}.run();
}

/// Model, norm and precision are the checkpoint's own.
settings settings_of_checkpoint(settings options, const dataset& data) {
  auto state = parse_state(read_state(read_whole(options.eval), options.eval),
                           options.eval);
  options.model = parse_model(state.model);
  options.norm = parse_norm(state.norm);
  options.precision = parse_precision(state.precision);
  options.batch = state.batch;
  options.seed = state.seed;
  auto expected = initial_state(options, data);
  // Any data will do whose images have the right shape.
  expected.fingerprint = state.fingerprint;
  require_same_run(state, expected, options.eval);
  return options;
}

void evaluate_model(caf::actor_system& system, const settings& given) {
  auto data = load_dataset(given.data);
  auto options = settings_of_checkpoint(given, *data);
  auto devices = devices_of(options);
  replica_group replicas{system,
                         spawn_replicas(system, options, devices, data)};
  replicas.load(options.eval);
  auto result = replicas.evaluate(data->held_out.size(), replicas.size());
  auto count = static_cast<double>(result.samples);
  fmt::print("held-out accuracy {:.2f} % ({} of {}), loss {:.6f}\n",
             100 * static_cast<double>(result.correct) / count, result.correct,
             result.samples, result.loss / count);
}

int run(int argc, char** argv) {
  detail::init_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>();
  config configuration;
  auto options = configuration.read(argc, argv);
  if (!options)
    return 0;
  caf::actor_system system{configuration};
  if (options->eval.empty())
    train_model(system, *options);
  else
    evaluate_model(system, *options);
  return 0;
}

} // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& x) {
    fmt::print(stderr, "syncnorm-train: {}\n", first_line(x.what()));
    return 1;
  }
}
