#pragma once

#include "normalizer.hpp"
#include "score.hpp"
#include "sink.hpp"
#include "source.hpp"

#include "tests/actors/below.hpp"
#include "tests/actors/simulated_slaves.hpp"
#include "tests/actors/simulation.hpp"
#include "tests/pipeline/stream_run.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

// A whole pipeline without threads, and what may happen to it.

namespace pipeline::test {

struct simulated_types {
  bool types = init_types();
  pipeline_config config;
};

/// A simulation with the message types of the pipeline.
struct simulated_pipeline : private simulated_types,
                            syncnorm::test::simulation {
  simulated_pipeline() : simulation{config} {}
};

// -- where records come from and where scores go ------------------------------

/// Reads known records, up to a refused one if there is one.
class failing_reader final : public counting_reader {
public:
  failing_reader(std::int64_t features, std::uint64_t records,
                 std::optional<std::uint64_t> bad)
      : counting_reader{features, records},
        bad_{bad} {}

  [[nodiscard]] bool has_failed() const {
    return has_failed_;
  }

protected:
  bool read(std::span<float> to) override {
    if (is_stopped())
      return false;
    if (bad_ == counts().delivered) {
      has_failed_ = true;
      throw std::runtime_error{"a bad record"};
    }
    return counting_reader::read(to);
  }

private:
  std::optional<std::uint64_t> bad_;
  bool has_failed_ = false;
};

/// A file on a disk that may be full: it accepts all of what is flushed, or
/// nothing.
class failing_file final : public std::stringbuf {
public:
  explicit failing_file(std::optional<int> good_writes)
      : good_writes_{good_writes} {}

  /// Whether there has been a write that failed.
  [[nodiscard]] bool has_failed() const {
    return has_failed_;
  }

  [[nodiscard]] const std::string& written() const {
    return written_;
  }

protected:
  int sync() override {
    has_failed_ = has_failed_ || (good_writes_ && (*good_writes_)-- == 0);
    if (has_failed_)
      return -1;
    written_ += str();
    str("");
    return 0;
  }

private:
  std::optional<int> good_writes_;
  bool has_failed_ = false;
  std::string written_;
};

// -- the supervisor -----------------------------------------------------------

/// The supervisor's state, which the test can inspect.
struct simulated_crew {
  syncnorm::test::simulation& here;
  std::mt19937& random;
  syncnorm::test::simulated_slaves slaves;
  syncnorm::test::simulated_slaves::replicas copies{};
  std::size_t together = 16;
  std::size_t groups = 2;
  /// Why the state cannot be saved.
  std::string problem{};
  bool is_dismissed = false;

  /// A random actor takes a message.
  /// @returns whether there was one.
  bool step() {
    auto ready = static_cast<std::int64_t>(here.ready());
    if (ready != 0)
      here.run(static_cast<std::size_t>(syncnorm::test::below(random, ready)));
    return ready != 0;
  }

  void spawn() {
    slaves.spawn(copies, [](const auto& master, auto) { return master; });
    while (!slaves.are_answered() && step())
      ;
    if (!slaves.take_part())
      throw std::runtime_error{"a slave is not registered"};
  }

  void release() {
    slaves.end(random);
    while (!slaves.have_ended() && step())
      ;
  }
};

/// Does what `supervisor` does. But that one waits for actors on its own
/// thread; this one lets others take their messages meanwhile.
class simulated_supervisor final : public supervisor_actor::base {
public:
  simulated_supervisor(caf::actor_config& config, simulated_crew& owned)
      : supervisor_actor::base{config},
        owned_{owned} {}

  void on_exit() override {
    owned_.release();
  }

  behavior_type make_behavior() override {
    owned_.spawn();
    return {
        [this](crew_atom) { return current(); },
        [this](recover_atom) { return recover(); },
        [this](dismiss_atom) { return dismiss(); },
    };
  }

private:
  [[nodiscard]] crew current() const {
    return {owned_.slaves.all(), owned_.together, owned_.groups};
  }

  crew recover() {
    owned_.release();
    auto least = *std::ranges::min_element(
        owned_.copies, {}, [](auto& x) { return x->num_batches_tracked(); });
    for (auto& x : owned_.copies)
      if (x != least)
        x->assign_state(*least);
    owned_.spawn();
    return current();
  }

  std::string dismiss() {
    owned_.release();
    owned_.is_dismissed = true;
    return owned_.problem;
  }

  simulated_crew& owned_;
};

} // namespace pipeline::test
