#pragma once

#include "normalizer.hpp"
#include "source.hpp"
#include "supervisor.hpp"

#include "tests/pipeline/support.hpp"

#include <syncnorm/future_result.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

// Streams of known records through the normalizer, and the results.

namespace pipeline::test {

// -- records ------------------------------------------------------------------

/// Value of a feature of a record: any fixed function without a pattern.
inline float value_at(std::uint64_t record, std::size_t feature) {
  auto x = (record * 64 + feature + 1) * 0x9e3779b97f4a7c15U;
  x ^= x >> 29;
  return static_cast<float>(x % 1000) / 100 + static_cast<float>(feature);
}

class counting_reader : public record_reader {
public:
  counting_reader(std::int64_t features, std::uint64_t records)
      : features_{features},
        records_{records} {}

  [[nodiscard]] std::int64_t features() const override {
    return features_;
  }

protected:
  bool read(std::span<float> to) override {
    if (record_ == records_)
      return false;
    for (std::size_t i = 0; i < to.size(); ++i)
      to[i] = value_at(record_, i);
    ++record_;
    return true;
  }

  [[nodiscard]] std::string place(std::size_t) const override {
    return "record " + std::to_string(record_);
  }

private:
  std::int64_t features_;
  std::uint64_t records_;
  std::uint64_t record_ = 0;
};

// -- the stage behind ---------------------------------------------------------

struct collected {
  std::vector<std::uint64_t> numbers;
  std::vector<float> values;
  /// The most batches that were here without having been given credit.
  std::uint64_t peak = 0;
  totals end;
};

/// Takes the place of score and sink: keeps what comes, and kills slaves as
/// told.
class collector : public stage_actor::base {
public:
  struct options {
    /// The batches at which a slave is killed, one after the other.
    std::set<std::uint64_t> kill_at;
    /// Gives credit only when this many batches have come.
    std::uint64_t hold = 1;
    bool keep_values = true;
    std::function<void(std::uint64_t)> watch = [](std::uint64_t) {};
  };

  using done_writer = syncnorm::future_writer<std::shared_ptr<collected>>;

  collector(caf::actor_config& config, source_actor source,
            supervisor_actor supervisor, options given,
            std::shared_ptr<done_writer> done)
      : stage_actor::base{config},
        source_{std::move(source)},
        supervisor_{std::move(supervisor)},
        options_{std::move(given)},
        done_{std::move(done)} {}

  void on_exit() override {
    source_ = nullptr;
    supervisor_ = nullptr;
    done_ = nullptr;
  }

  behavior_type make_behavior() override {
    return {
        [this](batch_atom, const batch& x) { take(x); },
        [this](end_atom, const totals& x) {
          result_->end = x;
          finish();
        },
    };
  }

private:
  void take(const batch& x) {
    options_.watch(x.number);
    if (options_.keep_values) {
      result_->numbers.push_back(x.number);
      for (const auto& part : x.parts) {
        const auto* data = static_cast<const float*>(part.view().data());
        result_->values.insert(result_->values.end(), data,
                               data + part.view().size());
      }
    }
    result_->peak = std::max(result_->peak, ++held_);
    if (options_.kill_at.contains(x.number))
      kill_next();
    if (held_ >= options_.hold)
      give_credit();
  }

  void finish() {
    if (!result_->end.failure.empty())
      return done_->put(result_);
    syncnorm::detail::request(this, supervisor_, dismiss_atom_v)
        .then([this](const std::string& problem) {
          result_->end.fail(problem);
          done_->put(result_);
        });
  }

  /// No credit is given until this is done: the stream must not end before.
  void kill_next() {
    ++killing_;
    syncnorm::detail::request(this, supervisor_, crew_atom_v)
        .then([this](const crew& x) {
          caf::anon_send_exit(x.slaves[victim_++ % x.slaves.size()],
                              caf::exit_reason::kill);
          --killing_;
          give_credit();
        });
  }

  void give_credit() {
    for (; held_ > 0 && killing_ == 0; --held_)
      syncnorm::detail::send(this, source_, credit_atom_v);
  }

  source_actor source_;
  supervisor_actor supervisor_;
  options options_;
  std::shared_ptr<done_writer> done_;
  std::shared_ptr<collected> result_ = std::make_shared<collected>();
  std::uint64_t held_ = 0;
  int killing_ = 0;
  std::size_t victim_ = 0;
};

// -- a run --------------------------------------------------------------------

struct run_options {
  std::int64_t features = 5;
  std::uint64_t records = 500;
  std::size_t slaves = 3;
  bool online = true;
  bool training = true;
  std::string state_file = {};
  source_options source{.batch_size = 7, .in_flight = 4};
  collector::options behind = {};
  /// Used in place of a supervisor.
  supervisor_actor keeper = {};
};

inline std::vector<syncnorm::device> cpus(std::size_t count) {
  std::vector<syncnorm::device> result;
  for (std::size_t i = 0; i < count; ++i)
    result.push_back(
        {syncnorm::device_type::cpu, static_cast<std::int32_t>(i)});
  return result;
}

inline collected run(caf::actor_system& system, const run_options& options,
                     std::int64_t channels = 0) {
  auto reader =
      std::make_shared<counting_reader>(options.features, options.records);
  auto owned =
      make_stages(system,
                  stream_options(channels == 0 ? options.features : channels,
                                 options.online),
                  cpus(options.slaves), options.training, options.state_file);
  auto done =
      std::make_shared<syncnorm::future_result<std::shared_ptr<collected>>>();
  auto writer = std::make_shared<collector::done_writer>(done);
  auto first = system.spawn<source, caf::detached>(reader, options.source);
  auto keeper = options.keeper;
  if (!keeper)
    keeper = system.spawn<supervisor, caf::detached>(
        std::move(owned), options.training ? options.state_file : "");
  auto behind =
      system.spawn<collector>(first, keeper, options.behind, std::move(writer));
  auto scatter =
      system.spawn<normalizer>(keeper, first, reader->stop(), behind);
  syncnorm::detail::anon_send(first, start_atom_v,
                              caf::actor_cast<caf::actor>(scatter));
  auto result = done->get();
  caf::anon_send_exit(scatter, caf::exit_reason::user_shutdown);
  REQUIRE(static_cast<bool>(result));
  return **result;
}

/// A plain loop's results for the records: with mean and variance of the batch,
/// or of all so far.
inline std::vector<double> truth(const run_options& options) {
  auto batch_size = static_cast<std::uint64_t>(options.source.batch_size);
  std::vector<double> result;
  for (std::uint64_t first = 0; first < options.records; first += batch_size) {
    auto last = std::min(first + batch_size, options.records);
    auto from = options.online ? 0 : first;
    auto width = static_cast<std::size_t>(options.features);
    std::vector<double> mean(width), var(width);
    auto n = static_cast<double>(last - from);
    for (auto i = from; i < last; ++i)
      for (std::size_t c = 0; c < width; ++c)
        mean[c] += value_at(i, c) / n;
    for (auto i = from; i < last; ++i)
      for (std::size_t c = 0; c < width; ++c)
        var[c] += std::pow(value_at(i, c) - mean[c], 2) / n;
    for (auto i = first; i < last; ++i)
      for (std::size_t c = 0; c < width; ++c)
        result.push_back((value_at(i, c) - mean[c]) / std::sqrt(var[c] + 1e-5));
  }
  return result;
}

inline void check_complete(const run_options& options, const collected& got) {
  CHECK(got.end.failure.empty());
  CHECK(got.end.records.delivered == options.records);
  CHECK(got.end.records_lost == 0);
  CHECK(got.end.batches == got.numbers.size());
  for (std::size_t i = 0; i < got.numbers.size(); ++i)
    REQUIRE(got.numbers[i] == i);
}

template <class Values>
void check_near(const std::vector<float>& got, const Values& want) {
  REQUIRE(got.size() == want.size());
  // The tolerance of float32 over batches of this size.
  for (std::size_t i = 0; i < got.size(); ++i)
    if (!(std::abs(got[i] - want[i]) <= 2e-5 * (1 + std::abs(want[i]))))
      FAIL_CHECK("element " << i << ": got " << got[i] << ", want " << want[i]);
}

} // namespace pipeline::test
