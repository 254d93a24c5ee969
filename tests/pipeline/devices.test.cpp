// The pipeline with slaves on devices, which the host emulates.

#include "tests/kernels/emulated_devices.hpp"
#include "tests/pipeline/stream_run.hpp"

#include <doctest/doctest.h>

#include <memory>
#include <utility>

using namespace pipeline;
using namespace pipeline::test;

namespace {

/// Two devices, declared before the system, so that every actor has let go of
/// them.
struct devices_fixture {
  syncnorm::testing::emulated_devices devices{2};
  pipeline_fixture base;
  caf::actor_system& system = base.system;

  ~devices_fixture() {
    for (const auto& fault : devices.faults())
      FAIL_CHECK(fault);
  }

  /// A supervisor of slaves on `where`, in training.
  supervisor_actor spawn_on(const std::vector<syncnorm::device>& where,
                            bool online, const std::string& state_file) {
    auto options = stream_options(5, online);
    options.where = {syncnorm::device_type::cuda, 0};
    options.stream = syncnorm::device_stream::make(devices, options.where);
    syncnorm::batch_norm_stage model{system, options};
    stages owned;
    for (const auto& x : where)
      owned.push_back(
          std::make_unique<syncnorm::batch_norm_stage>(model.clone_to(x)));
    return system.spawn<supervisor, caf::detached>(std::move(owned),
                                                   state_file);
  }
};

const syncnorm::device cpu;
const syncnorm::device first_gpu{syncnorm::device_type::cuda, 0};
const syncnorm::device second_gpu{syncnorm::device_type::cuda, 1};

} // namespace

TEST_CASE_FIXTURE(devices_fixture, "slaves on devices, alone or beside CPUs, "
                                   "give what a plain loop gives, in order") {
  for (bool online : {true, false})
    for (const auto& where : std::vector<std::vector<syncnorm::device>>{
             {first_gpu},
             {first_gpu, second_gpu},
             {cpu, first_gpu, second_gpu}}) {
      CAPTURE(online);
      CAPTURE(where.size());
      run_options options{.online = online};
      options.keeper = spawn_on(where, online, "");
      auto got = run(system, options);
      check_complete(options, got);
      check_near(got.values, truth(options));
    }
}

TEST_CASE_FIXTURE(devices_fixture, "slaves on devices that die are started "
                                   "anew: nothing is lost or counted twice") {
  for (bool online : {true, false}) {
    CAPTURE(online);
    scratch_file state{"devices"};
    run_options options{.online = online};
    options.behind.kill_at = {2, 11, 20, 29, 38, 47};
    options.keeper = spawn_on({first_gpu, second_gpu}, online, state.name);
    auto got = run(system, options);
    check_complete(options, got);
    CHECK(got.end.recoveries >= 1);
    check_near(got.values, truth(options));
    auto batches = "num_batches_tracked 1 " + std::to_string(got.end.batches);
    CHECK(content(state.name).find(batches + "\n") != std::string::npos);
    if (online)
      CHECK(content(state.name).find("num_elements_tracked 1 500\n")
            != std::string::npos);
  }
}

TEST_CASE_FIXTURE(devices_fixture, "what devices hold stays flat, however many "
                                   "batches pass") {
  for (bool online : {true, false}) {
    CAPTURE(online);
    run_options options{.records = 7000, .online = online};
    options.keeper = spawn_on({first_gpu, second_gpu}, online, "");
    auto got = run(system, options);
    check_complete(options, got);
    // 74 with four batches on their way; one left of each would be 1000.
    CHECK(devices.peak_alive() < 200);
  }
}
