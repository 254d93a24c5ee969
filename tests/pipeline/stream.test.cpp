#include "stream.hpp"

#include "normalizer.hpp"
#include "sink.hpp"

#include "tests/pipeline/live_memory.hpp"
#include "tests/pipeline/stream_run.hpp"

#include <syncnorm/future_result.hpp>

#include <doctest/doctest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <random>
#include <sstream>

using namespace pipeline;
using namespace pipeline::test;

TEST_CASE_FIXTURE(pipeline_fixture, "any number of slaves gives what a plain "
                                    "loop gives, in order, in every mode") {
  for (bool online : {true, false})
    for (std::size_t slaves : {1, 2, 4, 9}) {
      CAPTURE(online);
      CAPTURE(slaves);
      run_options options{.slaves = slaves, .online = online};
      auto got = run(system, options);
      check_complete(options, got);
      check_near(got.values, truth(options));
    }
}

TEST_CASE_FIXTURE(pipeline_fixture, "a stream cut in two, with the statistics "
                                    "saved between, ends as one stream, and "
                                    "evaluation uses them and saves nothing") {
  scratch_file file{"resumed"};
  run_options half{.records = 70, .state_file = file.name};
  check_complete(half, run(system, half));
  // The same records again, so that the whole is known.
  auto resumed = run(system, half);
  check_complete(half, resumed);
  auto text = content(file.name);
  syncnorm::batch_norm_replica replica{stream_options(5, true)};
  std::vector<double> sum(5), squares(5);
  for (std::uint64_t i = 0; i < 70; ++i)
    for (std::size_t c = 0; c < 5; ++c)
      sum[c] += value_at(i, c) / 70;
  for (std::uint64_t i = 0; i < 70; ++i)
    for (std::size_t c = 0; c < 5; ++c)
      squares[c] += std::pow(value_at(i, c) - sum[c], 2) / 70;
  auto evaluation = half;
  evaluation.training = false;
  auto got = run(system, evaluation);
  check_complete(evaluation, got);
  std::vector<double> want;
  for (std::uint64_t i = 0; i < 70; ++i)
    for (std::size_t c = 0; c < 5; ++c)
      want.push_back((value_at(i, c) - sum[c]) / std::sqrt(squares[c] + 1e-5));
  check_near(got.values, want);
  CHECK(content(file.name) == text);
  CHECK(text.find("num_elements_tracked 1 140\n") != std::string::npos);
}

TEST_CASE_FIXTURE(pipeline_fixture, "slaves that die under load are started "
                                    "anew: nothing is lost, and results and "
                                    "statistics have the same bits as "
                                    "without") {
  for (bool online : {true, false})
    for (std::size_t slaves : {1, 3})
      for (std::uint64_t in_flight : {4, 24}) {
        CAPTURE(online);
        CAPTURE(slaves);
        CAPTURE(in_flight);
        scratch_file quiet{"quiet"}, shaken{"shaken"};
        run_options options{
            .slaves = slaves, .online = online, .state_file = quiet.name};
        options.source.in_flight = in_flight;
        auto want = run(system, options);
        options.state_file = shaken.name;
        options.behind.kill_at = {2, 11, 20, 29, 38, 47};
        auto got = run(system, options);
        check_complete(options, got);
        CHECK(got.end.recoveries >= 1);
        CHECK(got.values == want.values);
        CHECK(content(shaken.name) == content(quiet.name));
      }
}

TEST_CASE_FIXTURE(pipeline_fixture, "so it is in a stream of any size, whose "
                                    "slaves die at any batches") {
  std::mt19937 random{1};
  auto below = [&](std::uint32_t n) { return random() % n; };
  for (int stream = 0; stream < 60; ++stream) {
    CAPTURE(stream);
    scratch_file quiet{"quiet"}, shaken{"shaken"};
    run_options options{.features = 1 + std::int64_t(below(9)),
                        .records = 1 + below(700),
                        .slaves = 1 + below(6),
                        .online = below(2) == 0,
                        .state_file = quiet.name};
    options.source.batch_size = 1 + std::int64_t(below(20));
    options.source.in_flight = 1 + below(30);
    auto want = run(system, options);
    check_complete(options, want);
    options.state_file = shaken.name;
    options.behind.hold = 1 + below(options.source.in_flight);
    for (std::uint64_t batch = 0; batch < want.numbers.size(); ++batch)
      if (below(6) == 0)
        options.behind.kill_at.insert(batch);
    auto got = run(system, options);
    check_complete(options, got);
    CHECK(got.values == want.values);
    CHECK(content(shaken.name) == content(quiet.name));
  }
}

TEST_CASE_FIXTURE(pipeline_fixture, "a sink that is slower than the source "
                                    "holds it back") {
  for (std::uint64_t bound : {1, 3, 8}) {
    run_options options;
    options.source.in_flight = bound;
    options.behind.hold = bound;
    auto got = run(system, options);
    check_complete(options, got);
    CHECK(got.peak == bound);
    CHECK(got.end.peak_in_flight == bound);
  }
}

TEST_CASE_FIXTURE(pipeline_fixture, "what the slaves refuse ends the stream "
                                    "with their error, and is counted") {
  run_options options;
  auto got = run(system, options, 6);
  CHECK(got.end.failure.find("expected 6 channels") != std::string::npos);
  CHECK(got.values.empty());
  CHECK(got.end.records.delivered > 0);
  CHECK(got.end.records_lost == got.end.records.delivered);
  CHECK(got.end.recoveries == 0);
}

namespace {

/// Knows only slaves that are dead.
class helpless : public supervisor_actor::base {
public:
  helpless(caf::actor_config& config, crew dead)
      : supervisor_actor::base{config},
        dead_{std::move(dead)} {}

  behavior_type make_behavior() override {
    return {
        [this](crew_atom) { return dead_; },
        [this](recover_atom) { return dead_; },
        [](dismiss_atom) { return std::string{}; },
    };
  }

private:
  crew dead_;
};

} // namespace

TEST_CASE_FIXTURE(pipeline_fixture, "slaves that cannot be brought back end "
                                    "the stream after a few attempts") {
  auto owned = make_stages(system, stream_options(5, true), cpus(2), true, "");
  syncnorm::execute_replication_callbacks(owned);
  crew dead;
  for (auto& stage : owned)
    dead.slaves.push_back(stage->slave());
  syncnorm::release_replicas(owned);
  run_options options;
  options.keeper = system.spawn<helpless>(dead);
  auto got = run(system, options);
  CHECK(got.end.failure.starts_with("participant_down: slave "));
  CHECK(got.end.recoveries == 3);
  CHECK(got.end.records.delivered > 0);
  CHECK(got.end.records_lost == got.end.records.delivered);
}

namespace {

/// Takes so many bytes and no more.
class full_disk : public std::streambuf {
public:
  explicit full_disk(int room) : room_{room} {}

protected:
  int_type overflow(int_type c) override {
    on_write();
    return room_-- > 0 ? c : traits_type::eof();
  }

public:
  std::function<void()> on_write = [] {};

private:
  int room_;
};

struct full_stream : std::ostream {
  explicit full_stream(int room) : std::ostream{nullptr}, disk{room} {
    rdbuf(&disk);
  }

  full_disk disk;
};

totals run_whole(caf::actor_system& system,
                 std::shared_ptr<record_reader> reader,
                 std::shared_ptr<std::ostream> out,
                 const std::string& state_file = {}) {
  auto owned = make_stages(system, stream_options(reader->features(), true),
                           cpus(2), true, state_file);
  return run_stream(system, reader, {.batch_size = 4, .in_flight = 2},
                    std::move(owned), state_file,
                    {"scores.csv", std::move(out)});
}

std::shared_ptr<record_reader> csv(const std::string& name,
                                   const std::string& text,
                                   record_policies policies) {
  std::ofstream{name} << text;
  return open_records(name, 1, false, policies);
}

} // namespace

TEST_CASE_FIXTURE(pipeline_fixture, "every record of the digits gets a line, "
                                    "in order") {
  auto out = std::make_shared<std::ostringstream>();
  auto got = run_whole(system, open_records(digits, 1, false), out);
  CHECK(got.failure.empty());
  CHECK(got.records_out == 360);
  std::istringstream lines{out->str()};
  std::string line;
  for (int i = 0; i < 360; ++i) {
    REQUIRE(std::getline(lines, line));
    CHECK(line.substr(0, line.find(',')) == std::to_string(i));
    CHECK(std::stod(line.substr(line.find(',') + 1)) > 0);
  }
  CHECK(!std::getline(lines, line));
}

TEST_CASE_FIXTURE(pipeline_fixture, "a disk that is full ends the stream, and "
                                    "what was not written is counted") {
  auto got = run_whole(system, open_records(digits, 1, false),
                       std::make_shared<full_stream>(100));
  CHECK(got.failure == "scores.csv: the scores cannot be written");
  CHECK(got.records_out < 20);
  CHECK(got.records_lost > 0);
  CHECK(got.records_out + got.records_lost == got.records.delivered);
}

TEST_CASE_FIXTURE(pipeline_fixture, "a score counts as written when its batch "
                                    "has left the stream's own memory") {
  for (int records : {1, 3, 4, 5}) {
    scratch_file input{"input"};
    std::string text;
    for (int i = 0; i < records; ++i)
      text += std::to_string(i) + "," + std::to_string(i * i) + "\n";
    auto got = run_whole(system, csv(input.name, text, {}),
                         std::make_shared<std::ofstream>("/dev/full"));
    CHECK(got.failure
          == "scores.csv: the scores cannot be written: No space left on "
             "device");
    CHECK(got.records_out == 0);
    CHECK(got.records_lost == got.records.delivered);
  }
}

TEST_CASE_FIXTURE(pipeline_fixture, "a stage that dies ends the stream for the "
                                    "one who waits") {
  auto out = std::make_shared<full_stream>(100);
  out->exceptions(std::ios::badbit); // the sink's handler throws
  auto got = run_whole(system, open_records(digits, 1, false), out);
  CHECK(got.failure == "a stage has died");
  CHECK(got.records.delivered > 0);
  CHECK(got.records_out + got.records_lost == got.records.delivered);
}

namespace {

/// Throws what is no error, in the source's own handler.
struct broken_reader : counting_reader {
  broken_reader() : counting_reader{2, 100} {}

protected:
  bool read(std::span<float> to) override {
    if (++reads_ == 9)
      throw 9;
    return counting_reader::read(to);
  }

private:
  int reads_ = 0;
};

} // namespace

TEST_CASE_FIXTURE(pipeline_fixture,
                  "a source that dies ends the stream for the "
                  "one who waits") {
  auto got = run_whole(system, std::make_shared<broken_reader>(), nullptr);
  CHECK(got.failure == "a stage has died");
}

TEST_CASE_FIXTURE(pipeline_fixture,
                  "statistics that cannot be saved at the end "
                  "are said to be lost") {
  scratch_file folder{"folder"}, input{"input"};
  std::filesystem::create_directory(folder.name);
  auto state = folder.name + "/state";
  auto out = std::make_shared<full_stream>(1 << 20);
  out->disk.on_write = [&] { std::filesystem::remove_all(folder.name); };
  auto got = run_whole(system, csv(input.name, "1,2\n3,5\n", {}), out, state);
  CHECK(got.failure
        == state + ": cannot be written: No such file or directory");
  CHECK(got.records_out == 2);
}

namespace {

/// CSV from a pipe that stays open.
struct live_input {
  live_input() {
    REQUIRE(::pipe(ends.data()) == 0);
  }

  ~live_input() {
    ::close(ends[0]);
    ::close(ends[1]);
  }

  std::shared_ptr<record_reader> reader(const std::string& text) {
    REQUIRE(::write(ends[1], text.data(), text.size())
            == static_cast<ssize_t>(text.size()));
    return open_records("/dev/fd/" + std::to_string(ends[0]), 1, false);
  }

  std::array<int, 2> ends{};
};

/// Asks for the end of the stream when something is written.
struct impatient_stream : full_stream {
  explicit impatient_stream(std::shared_ptr<stop_signal> to)
      : full_stream{1 << 20} {
    disk.on_write = [to = std::move(to)] {
      to->raise(stop_signal::reason::asked);
    };
  }
};

constexpr auto six_records = "1,2\n3,5\n4,4\n5,8\n6,0\n7,1\n";

} // namespace

TEST_CASE_FIXTURE(pipeline_fixture, "a source that waits for input ends when "
                                    "the sink has failed or died") {
  for (bool dies : {false, true}) {
    live_input input;
    auto out = std::make_shared<full_stream>(0);
    if (dies)
      out->exceptions(std::ios::badbit);
    auto got = run_whole(system, input.reader(six_records), out);
    CHECK(got.failure
          == (dies ? "a stage has died"
                   : "scores.csv: the scores cannot be written"));
    CHECK(got.records_lost == got.records.delivered);
  }
}

TEST_CASE_FIXTURE(pipeline_fixture, "a source that waits for input ends when "
                                    "the slaves refuse what it has sent") {
  live_input input;
  auto reader = input.reader(six_records);
  auto owned = make_stages(system, stream_options(3, true), cpus(2), true, "");
  auto got = run_stream(system, reader, {.batch_size = 4, .in_flight = 2},
                        std::move(owned), "", {});
  CHECK(got.failure.find("expected 3 channels") != std::string::npos);
  CHECK(got.records_lost == got.records.delivered);
}

TEST_CASE_FIXTURE(pipeline_fixture, "a stream that is asked to stop, also "
                                    "while it waits for input, ends well "
                                    "behind what was read, and is saved") {
  // A line that is not whole yet is no record, whatever stands in it.
  for (const std::string rest : {"", "9", "9,9"}) {
    CAPTURE(rest);
    live_input input;
    scratch_file state{"state"};
    auto reader = input.reader(six_records + rest);
    auto got = run_whole(system, reader,
                         std::make_shared<impatient_stream>(reader->stop()),
                         state.name);
    CHECK(got.failure.empty());
    // The first batch is written; of the rest the source may have read nothing
    // yet when it is asked.
    CHECK((got.records_out >= 4 && got.records_out <= 6));
    CHECK(got.records_out == got.records.delivered);
    CHECK(got.records_lost == 0);
    CHECK(content(state.name)
              .find("num_elements_tracked 1 " + std::to_string(got.records_out)
                    + "\n")
          != std::string::npos);
  }
}

TEST_CASE_FIXTURE(pipeline_fixture, "a bad record ends the stream behind those "
                                    "before it, and saves nothing; skipped, it "
                                    "is counted") {
  scratch_file input{"input"}, state{"state"};
  auto text = "1,2\n3,5\n4,nan\n5,8\n6,x\n7,1\n";
  auto got = run_whole(system, csv(input.name, text, {}), nullptr, state.name);
  CHECK(got.failure
        == input.name
               + ", line 3, column 2: expected a finite number, got nan");
  CHECK(got.records_out == 2);
  CHECK(got.records_lost == 0);
  CHECK(content(state.name).empty());
  got = run_whole(
      system,
      csv(input.name, text, {bad_record_policy::skip, bad_record_policy::skip}),
      nullptr, state.name);
  CHECK(got.failure.empty());
  CHECK(got.records_out == 4);
  CHECK(got.records.skipped_malformed == 1);
  CHECK(got.records.skipped_not_finite == 1);
  // Statistics of two features do not fit three.
  CHECK_THROWS_AS(
      run_whole(system, csv(input.name, "1,2,3\n", {}), nullptr, state.name),
      std::runtime_error);
}

TEST_CASE_FIXTURE(pipeline_fixture, "memory stays flat however long the stream "
                                    "is") {
  if (!counts_live_memory)
    return;
  // SYNCNORM_PIPELINE_BATCHES=1000000 is the long form.
  const auto* given = std::getenv("SYNCNORM_PIPELINE_BATCHES");
  auto batches = given != nullptr ? std::strtoull(given, nullptr, 10) : 20'000;
  for (bool online : {true, false}) {
    std::int64_t first_half = 0;
    std::int64_t second_half = 0;
    run_options options{.features = 8, .records = 4 * batches, .slaves = 2};
    options.online = online;
    options.source.batch_size = 4;
    options.behind.keep_values = false;
    options.behind.watch = [&](std::uint64_t number) {
      auto& peak = number < batches / 2 ? first_half : second_half;
      peak = std::max(peak, live_memory());
    };
    auto got = run(system, options);
    CHECK(got.end.batches == batches);
    CHECK(got.end.peak_in_flight <= 4);
    CHECK(first_half > 0);
    // What half of the batches would leave behind, if each left two bytes.
    CHECK(second_half - first_half < static_cast<std::int64_t>(batches));
  }
}
