// A replica that fails while its process answers, and a disk that does.

#include "trainer/model/archive.hpp"
#include "trainer/model/engine.hpp"
#include "trainer/run/replica.hpp"
#include "trainer/run/trainer.hpp"
#include "trainer/run/worker.hpp"

#include "trainer/digits.hpp"
#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "trainer/output/atomic_file.hpp"

#include "syncnorm/network.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

/// Whether no folder can be flushed.
std::atomic<bool> folders_fail = false;

/// The digits with fewer training images: a replica that has these fails in the
/// first step that goes beyond them, and answers whatever it is asked then.
dataset_ptr fewer_digits() {
  auto training = digits->training;
  training.labels.resize(700);
  training.pixels.resize(700 * training.shape.size());
  return make_dataset(training, digits->held_out);
}

/// The digits with fewer held-out images: a replica that has these trains, and
/// fails when it is to classify its part of the others.
dataset_ptr fewer_held_out() {
  auto held_out = digits->held_out;
  held_out.labels.resize(10);
  held_out.pixels.resize(10 * held_out.shape.size());
  return make_dataset(digits->training, held_out);
}

/// The sixth step of an epoch goes beyond the fewer digits.
settings short_run(const scratch_folder& folder) {
  settings result;
  result.model = model_kind::mlp;
  result.batch = 128;
  result.epochs = 1;
  result.deadline = 20;
  result.patience = 20;
  result.checkpoint = folder.path().string();
  return result;
}

std::vector<replica_actor> one_replica(caf::actor_system& system,
                                       const settings& options,
                                       const dataset_ptr& data) {
  return spawn_replicas(system, options, {device{}}, data);
}

std::uint64_t saved_step(const settings& options) {
  auto file = checkpoint_file(options);
  return parse_state(unpack_run(read_whole(file), file), file).step;
}

/// What a run has told its user.
class told {
public:
  told() : file_{std::tmpfile()}, display{file_} {}
  told(const told&) = delete;
  told& operator=(const told&) = delete;

  ~told() {
    std::fclose(file_);
  }

  std::string text() {
    std::rewind(file_);
    std::string result;
    for (int c = 0; (c = std::fgetc(file_)) != EOF;)
      result += static_cast<char>(c);
    return result;
  }

private:
  std::FILE* file_;

public:
  progress_display display;
};

struct network_config : test_config {
  network_config() {
    use_network(*this);
  }
};

/// Has CAF 0.17 send on to `to` what no handler takes; CAF 1.x wants a handler
/// for `caf::message` instead.
template <class Self>
void pass_on(Self* self, const caf::actor& to) {
  if constexpr (compat::caf_line == 0)
    self->set_default_handler([self, to](caf::scheduled_actor*, auto& x) {
      compat::delegate(self, to, x.move_content_to_message());
      return caf::message{};
    });
}

/// What a replica says of a step, given its number and what is true.
using told_of_step = std::function<caf::expected<step_report>(
    std::uint64_t, const step_report&)>;

/// A replica that does all that `real` does, and says something else of it.
replica_actor spawn_disguised(caf::actor_system& system,
                              const replica_actor& real,
                              const told_of_step& says) {
  auto disguise = system.spawn([real, says](caf::event_based_actor* self) {
    auto to = caf::actor_cast<caf::actor>(real);
    pass_on(self, to);
    auto pass = [self, to](caf::message& x) {
      return compat::delegate(self, to, std::move(x));
    };
    return caf::behavior{
        [self, real, says](step_atom, const step_plan& plan) {
          auto promise = self->make_response_promise<step_report>();
          auto report = [promise, says,
                         step = plan.step](const step_report& x) mutable {
            if (auto told = says(step, x))
              promise.deliver(std::move(*told));
            else
              promise.deliver(told.error());
          };
          auto fail = [promise](caf::error& x) mutable {
            promise.deliver(std::move(x));
          };
          compat::request(self, real, step_atom_v, plan).then(report, fail);
          return promise;
        },
        pass};
  });
  return caf::actor_cast<replica_actor>(
      caf::actor_cast<caf::strong_actor_ptr>(disguise));
}

/// A replica that does all that `real` does, and then has failed in that step.
replica_actor spawn_late_failure(caf::actor_system& system,
                                 const replica_actor& real,
                                 std::uint64_t failing) {
  return spawn_disguised(
      system, real,
      [failing](std::uint64_t step,
                const step_report& x) -> caf::expected<step_report> {
        if (step == failing)
          return make_error(errc::invalid_argument, "lost at the end");
        return x;
      });
}

/// A run of two nodes, of which the one that joins fails.
struct faulty_run {
  settings options;
  dataset_ptr too_few;
  /// In which step the worker's replica has failed once it is done.
  std::optional<std::uint64_t> late_failure;
  network_config here;
  network_config there;
  caf::actor_system server{here};
  caf::actor_system worker{there};
  std::thread working;
  std::string worker_end;
  std::unique_ptr<fleet> processes;
  told output;

  /// @param data of the worker.
  explicit faulty_run(const settings& given,
                      const dataset_ptr& data = fewer_digits(),
                      std::optional<std::uint64_t> late = std::nullopt)
      : options{given},
        too_few{data},
        late_failure{late} {
    options.serve = "127.0.0.1:0";
    options.workers = 1;
    auto no = [] { return false; };
    processes = std::make_unique<fleet>(
        server, options, one_replica(server, options, digits), "same",
        [this](const std::string& line) { join(line); }, no);
  }

  faulty_run(const faulty_run&) = delete;
  faulty_run& operator=(const faulty_run&) = delete;

  ~faulty_run() {
    processes.reset();
    if (working.joinable())
      working.join();
  }

  /// @param stop is asked after each step whether that was the last one.
  /// @returns what the trainer says at its end.
  std::string run(const std::function<bool()>& stop = [] { return false; }) {
    auto end = message_of([&] {
      trainer coordinator{options, *digits, *processes, output.display, stop};
      auto text = coordinator.run();
      processes->end(true, text);
      throw failure{text};
    });
    processes->end(false, end);
    working.join();
    return end;
  }

private:
  void join(const std::string& line) {
    const std::string start = "serving at ";
    if (!line.starts_with(start))
      return;
    auto own = options;
    own.serve.clear();
    own.join = line.substr(start.size(), line.find(": waiting") - start.size());
    working = std::thread{[this, own] {
      auto real = one_replica(worker, own, too_few);
      application app{"a worker", -1, "same", real};
      if (late_failure)
        app.replicas = {spawn_late_failure(worker, real[0], *late_failure)};
      auto quiet = [](const std::string&) {};
      worker_end = message_of(
          [&] { take_part(worker, own, app, quiet, [] { return false; }); });
      for (const auto& replicas : {real, app.replicas})
        for (const auto& replica : replicas)
          caf::anon_send_exit(replica, caf::exit_reason::user_shutdown);
    }};
  }
};

const std::string why =
    "replica 1: expected a part of 700 samples, found 640 to 768";

} // namespace

// Takes the place of the system's in this program.
extern "C" int fsync(int file) {
  struct stat what {};
  if (folders_fail && ::fstat(file, &what) == 0 && S_ISDIR(what.st_mode)) {
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, file));
}

TEST_CASE("a checkpoint that is there, and may be lost because its folder "
          "cannot be flushed, is named with its step") {
  scratch_folder folder;
  auto options = short_run(folder);
  options.every = 1;
  caf::actor_system system{configuration()};
  fleet processes{system, options, one_replica(system, options, digits)};
  told output;
  trainer coordinator{options, *digits, processes, output.display, [] {
                        folders_fail = true;
                        return false;
                      }};
  auto message = message_of([&] { coordinator.run(); });
  folders_fail = false;
  CHECK(message
        == folder.path().string()
               + ": cannot be flushed: Input/output error; the checkpoint "
               + checkpoint_file(options)
               + ", of step 1, may be lost when the machine stops");
  CHECK(saved_step(options) == 1);
}

TEST_CASE("a replica of this process that fails ends the run by its error, "
          "with a checkpoint of the last whole step") {
  for (auto kind : {failure_kind::stop, failure_kind::go_on}) {
    scratch_folder folder;
    auto options = short_run(folder);
    options.on_failure = kind;
    caf::actor_system system{configuration()};
    auto members = one_replica(system, options, digits);
    members.push_back(one_replica(system, options, fewer_digits()).at(0));
    fleet processes{system, options, members};
    told output;
    trainer coordinator{options, *digits, processes, output.display,
                        [] { return false; }};
    CHECK(message_of([&] { coordinator.run(); })
          == why + "; stopped after step 5; go on with --resume from "
                 + checkpoint_file(options));
    CHECK(saved_step(options) == 5);
  }
}

TEST_CASE("a replica of another process that fails ends the run for all, who "
          "learn its process and its error, with a checkpoint of the last "
          "whole step") {
  scratch_folder folder;
  auto options = short_run(folder);
  faulty_run one{options};
  auto end = one.run();
  CHECK(contains(end, "process 1 (a worker, 1 replica) has failed: " + why
                          + "; stopped after step 5; go on with --resume"));
  CHECK(contains(one.worker_end, why));
  CHECK(saved_step(options) == 5);
}

TEST_CASE("with --on-failure=continue the rest goes on without the process of "
          "a replica that fails") {
  scratch_folder folder;
  auto options = short_run(folder);
  options.on_failure = failure_kind::go_on;
  faulty_run one{options};
  CHECK(one.run().starts_with("held-out accuracy "));
  CHECK(contains(one.output.text(),
                 "after step 5: process 1 (a worker, 1 replica) has failed: "
                     + why));
  CHECK(one.worker_end == "this process has failed: " + why);
  CHECK(saved_step(options) == 12);
}

TEST_CASE("a checkpoint that is due after a step is written also where a "
          "process is lost once that step is done") {
  scratch_folder folder;
  auto options = short_run(folder);
  options.on_failure = failure_kind::go_on;
  options.every = 6;
  faulty_run one{options, digits, 6};
  std::set<std::uint64_t> saved;
  auto end = one.run([&] {
    saved.insert(saved_step(options));
    return false;
  });
  INFO(end);
  CHECK(end.starts_with("held-out accuracy "));
  auto text = one.output.text();
  CHECK(contains(text,
                 "after step 6: process 1 (a worker, 1 replica) has failed: "));
  CHECK(saved == std::set<std::uint64_t>{0, 6});
}

TEST_CASE("with --on-failure=continue the rest classifies all held-out images "
          "without the process of a replica that fails there") {
  scratch_folder folder;
  auto options = short_run(folder);
  options.on_failure = failure_kind::go_on;
  faulty_run one{options, fewer_held_out()};
  CHECK(contains(one.run(),
                 fmt::format(" of {})", digits->held_out.labels.size())));
  auto text = one.output.text();
  CHECK(contains(text, "process 1 (a worker, 1 replica) has failed: replica 1: "
                       "expected a part of 10 samples, found "));
  CHECK(saved_step(options) == 12);
}

TEST_CASE("a checkpoint amid a batch is refused before anything is computed") {
  scratch_folder folder;
  auto options = short_run(folder);
  options.resume = true;
  auto resumed_at = [&](std::uint64_t position) {
    auto state = initial_state(options, *digits);
    state.position = position;
    write_atomically(checkpoint_file(options),
                     pack(engine{options, device{}, digits}.state(),
                          to_text(state), options, digits->training.shape));
    return message_of([&] { (void) find_state(options, *digits); });
  };
  CHECK(resumed_at(128) == "nothing was thrown");
  for (std::uint64_t position : {129, 1536})
    CHECK(resumed_at(position)
          == fmt::format("{}: expected the position of a batch among 1437 "
                         "samples, found {}",
                         checkpoint_file(options), position));
}

TEST_CASE("a run that is to stop ends after the step that is under way, and "
          "saves it") {
  scratch_folder folder;
  auto options = short_run(folder);
  caf::actor_system system{configuration()};
  fleet processes{system, options, one_replica(system, options, digits)};
  told output;
  trainer coordinator{options, *digits, processes, output.display,
                      [] { return true; }};
  // While it looked, the second one had begun.
  CHECK(coordinator.run()
        == "stopped after step 2; go on with --resume from "
               + checkpoint_file(options));
  CHECK(saved_step(options) == 2);
}

TEST_CASE("a sum that is not finite stops the run, also if the loss and each "
          "part of it are") {
  scratch_folder folder;
  auto options = short_run(folder);
  caf::actor_system system{configuration()};
  auto members = one_replica(system, options, digits);
  members[0] = spawn_disguised(
      system, members[0],
      [](std::uint64_t step, step_report x) -> caf::expected<step_report> {
        x.sum_finite = step != 2;
        return x;
      });
  fleet processes{system, options, members};
  told output;
  trainer coordinator{options, *digits, processes, output.display,
                      [] { return false; }};
  CHECK(contains(message_of([&] { coordinator.run(); }),
                 "step 2: the loss or the gradient of replica 0 is not "
                 "finite (loss "));
}

TEST_CASE("with local norm replica 0, whose model is saved, classifies all "
          "held-out images") {
  scratch_folder folder;
  auto options = short_run(folder);
  options.norm = norm_kind::local;
  caf::actor_system system{configuration()};
  auto members = one_replica(system, options, digits);
  members.push_back(one_replica(system, options, fewer_held_out()).at(0));
  fleet processes{system, options, members};
  told output;
  trainer coordinator{options, *digits, processes, output.display,
                      [] { return false; }};
  CHECK(contains(coordinator.run(),
                 fmt::format(" of {})", digits->held_out.labels.size())));
}
