#include "tests/actors/fault_rounds.hpp"
#include "tests/pipeline/simulated_stream.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace pipeline;
using namespace pipeline::test;

// Whole streams, whose actors take their messages in any order, while slaves
// and stages die, a record is bad, the disk is full, or somebody has seen
// enough.

namespace {

// Statistics of some records in float32, and six digits of a score.
constexpr double tolerance = 1e-4;

// As often in a row the normalizer asks for other slaves.
constexpr int attempts = 3;

class stream_run {
public:
  stream_run(simulated_pipeline& here, std::uint32_t seed)
      : here_{here},
        random_{seed} {
    options_.features = 1 + below(3);
    options_.records = static_cast<std::uint64_t>(below(40));
    options_.online = below(2) == 0;
    options_.training = options_.online || below(2) == 0;
    options_.source.batch_size = 1 + below(5);
    options_.source.in_flight = static_cast<std::uint64_t>(1 + below(6));
    options_.slaves = static_cast<std::size_t>(1 + below(4));
    slave_faults_left_ =
        static_cast<int>(std::max<std::int64_t>(0, below(8) - 2));
    may_stop_ = below(6) == 0;
    may_kill_stage_ = below(6) == 0;
    make_crew();
  }

  stream_run(const stream_run&) = delete;
  stream_run& operator=(const stream_run&) = delete;

  /// @returns what was wrong, or empty.
  std::string run() {
    auto others = here_.system.registry().running();
    spawn();
    auto wrong = play(others);
    // What is wrong with this run is not to hold up the next.
    for (const auto& x : std::exchange(stages_, {}))
      caf::anon_send_exit(x, caf::exit_reason::kill);
    here_.run_to_the_end();
    if (wrong.empty() && !crew_->slaves.have_ended())
      return "a copy is not given back";
    return wrong;
  }

private:
  using lines = std::vector<std::pair<std::uint64_t, double>>;

  /// @param others how many actors there are beside these.
  std::string play(std::size_t others) {
    while (crew_->step()) {
      if (auto wrong = what_is_wrong_now(); !wrong.empty())
        return wrong;
      if (below(25) == 0)
        befall();
    }
    if (!done_->is_ready())
      return "nobody was told the end";
    auto end = **done_->get();
    // As `run_stream`.
    caf::anon_send_exit(stages_[0], caf::exit_reason::user_shutdown);
    reader_->stop()->raise(stop_signal::reason::failed);
    here_.run_to_the_end();
    if (here_.system.registry().running() != others)
      return "somebody is still there";
    return what_is_wrong_with(end);
  }

  std::int64_t below(std::int64_t n) {
    return syncnorm::test::below(random_, n);
  }

  /// One in some has that.
  template <class T>
  std::optional<T> one_in(std::int64_t some, std::int64_t n) {
    auto value = static_cast<T>(below(n));
    return below(some) == 0 ? std::optional{value} : std::nullopt;
  }

  // -- who takes part ---------------------------------------------------------

  void make_crew() {
    auto options = stream_options(options_.features, options_.online);
    options.fan_in = 2 + below(3);
    crew_ = std::make_unique<simulated_crew>(
        simulated_crew{.here = here_,
                       .random = random_,
                       .slaves = {here_.system, options},
                       .together = static_cast<std::size_t>(1 + below(4)),
                       .groups = static_cast<std::size_t>(1 + below(3))});
    for (std::size_t i = 0; i < options_.slaves; ++i) {
      crew_->copies.push_back(
          std::make_shared<syncnorm::batch_norm_replica>(options));
      crew_->copies.back()->train(options_.training);
    }
    if (below(8) == 0)
      crew_->problem = "no such folder";
  }

  void spawn() {
    reader_ = std::make_shared<failing_reader>(
        options_.features, options_.records, one_in<std::uint64_t>(4, 40));
    auto stop = reader_->stop();
    auto first = here_.system.spawn<source>(reader_, options_.source);
    auto keeper = here_.system.spawn<simulated_supervisor>(*crew_);
    auto last = here_.system.spawn<sink>(
        first, keeper, stop, score_output{"scores", file_},
        std::make_shared<syncnorm::future_writer<shared_totals>>(done_));
    auto behind = here_.system.spawn<score>(last);
    auto scatter = here_.system.spawn<normalizer>(keeper, first, stop, behind);
    for (const auto& x : {caf::actor_cast<caf::actor>(scatter),
                          caf::actor_cast<caf::actor>(first),
                          caf::actor_cast<caf::actor>(keeper),
                          caf::actor_cast<caf::actor>(last),
                          caf::actor_cast<caf::actor>(behind)})
      stages_.push_back(x);
    syncnorm::compat::anon_send(first, start_atom_v, stages_[0]);
  }

  // -- what befalls them ------------------------------------------------------

  void befall() {
    auto what = below(6);
    if (what == 0 && std::exchange(may_stop_, false))
      reader_->stop()->raise(stop_signal::reason::asked);
    else if (what == 1 && std::exchange(may_kill_stage_, false))
      kill_stage();
    else if (slave_faults_left_ > 0 && !crew_->slaves.all().empty())
      fail_slave();
  }

  void kill_stage() {
    has_killed_stage_ = true;
    auto victim = static_cast<std::size_t>(below(std::ssize(stages_)));
    caf::anon_send_exit(stages_[victim], caf::exit_reason::kill);
  }

  void fail_slave() {
    --slave_faults_left_;
    ++slave_faults_;
    const auto& all = crew_->slaves.all();
    const auto& victim = all[static_cast<std::size_t>(below(std::ssize(all)))];
    const auto& master = crew_->slaves.master();
    auto what = below(6);
    has_given_up_ = has_given_up_ || what == 0;
    if (what == 0)
      syncnorm::compat::anon_send(victim, syncnorm::give_up_atom_v,
                                  std::string{"of no use"});
    else if (what < 3 && master)
      caf::anon_send_exit(master, caf::exit_reason::kill);
    else
      caf::anon_send_exit(victim, caf::exit_reason::kill);
  }

  // -- what must be so --------------------------------------------------------

  /// Backpressure.
  std::string what_is_wrong_now() const {
    auto on_their_way = reader_->counts().delivered - written().size();
    auto most = options_.source.in_flight
                * static_cast<std::uint64_t>(options_.source.batch_size);
    if (on_their_way > most && !buffer_->has_failed())
      return std::to_string(on_their_way) + " records on their way";
    return "";
  }

  std::string what_is_wrong_with(const totals& end) {
    if (auto wrong = what_is_wrong_with_counts(end); !wrong.empty())
      return wrong;
    if (auto wrong = what_is_wrong_with_failure(end); !wrong.empty())
      return wrong + ", the end is \"" + end.failure + '"';
    if (auto wrong = what_is_wrong_with_scores(); !wrong.empty())
      return wrong;
    return end.failure.empty() ? what_is_wrong_with_states(end) : "";
  }

  /// Nothing is lost without being counted.
  std::string what_is_wrong_with_counts(const totals& end) const {
    auto delivered = reader_->counts().delivered;
    if (end.records_out != written().size())
      return "records out";
    if (!end.died && end.records.delivered != delivered)
      return "records delivered";
    if (!end.died && end.records_out + end.records_lost != delivered)
      return "records lost: " + std::to_string(end.records_lost) + " and "
             + std::to_string(end.records_out) + " of "
             + std::to_string(delivered);
    if (end.peak_in_flight > options_.source.in_flight)
      return "in flight";
    if (end.recoveries > static_cast<std::uint64_t>(slave_faults_))
      return "recoveries";
    return "";
  }

  std::string what_is_wrong_with_failure(const totals& end) const {
    auto has_failed = !end.failure.empty();
    auto must = reader_->has_failed() || buffer_->has_failed() || end.died;
    // Other slaves would find wrong what one says is wrong.
    auto may =
        must || has_killed_stage_ || has_given_up_ || slave_faults_ > attempts;
    if (must && !has_failed)
      return "a failure is not told";
    if (has_failed && !may && end.failure != crew_->problem)
      return "a failure without a cause";
    if (end.died && !has_killed_stage_)
      return "a stage has died";
    if (crew_->is_dismissed && !has_failed && !crew_->problem.empty())
      return "a state that is not saved is not told";
    return "";
  }

  /// The scores are those of float64, in order, from the first record on.
  std::string what_is_wrong_with_scores() const {
    auto got = written();
    auto want = expected(got.size());
    for (std::size_t i = 0; i < got.size(); ++i)
      if (got[i].first != i
          || !(std::abs(got[i].second - want[i]) <= tolerance * (1 + want[i])))
        return "score " + std::to_string(i) + " is "
               + std::to_string(got[i].second) + " for "
               + std::to_string(want[i]);
    return "";
  }

  /// The slaves have learned what came out.
  std::string what_is_wrong_with_states(const totals& end) const {
    if (!crew_->is_dismissed)
      return "not dismissed";
    auto learned = options_.training ? end.batches : 0;
    for (const auto& x : crew_->copies)
      if (static_cast<std::uint64_t>(x->num_batches_tracked()) != learned
          || state_of(*x) != state_of(*crew_->copies[0]))
        return "the slaves' states";
    return "";
  }

  /// What was written, line by line.
  [[nodiscard]] lines written() const {
    lines result;
    std::istringstream in{buffer_->written()};
    std::uint64_t record = 0;
    char comma = 0;
    double value = 0;
    while (in >> record >> comma >> value)
      result.emplace_back(record, value);
    return result;
  }

  [[nodiscard]] std::vector<double> expected(std::size_t records) const {
    auto ys = options_.training ? truth(read_records()) : untrained();
    auto width = static_cast<std::size_t>(options_.features);
    std::vector<double> result;
    for (std::size_t i = 0; i < records; ++i) {
      double sum = 0;
      for (std::size_t c = 0; c < width; ++c)
        sum += ys[i * width + c] * ys[i * width + c];
      result.push_back(std::sqrt(sum / static_cast<double>(width)));
    }
    return result;
  }

  /// The stream that has been, up to a record that was bad.
  [[nodiscard]] run_options read_records() const {
    auto result = options_;
    result.records = reader_->counts().delivered;
    return result;
  }

  /// With a mean of 0 and a variance of 1.
  [[nodiscard]] std::vector<double> untrained() const {
    std::vector<double> result;
    auto width = static_cast<std::size_t>(options_.features);
    for (std::uint64_t i = 0; i < reader_->counts().delivered; ++i)
      for (std::size_t c = 0; c < width; ++c)
        result.push_back(value_at(i, c) / std::sqrt(1 + 1e-5));
    return result;
  }

  simulated_pipeline& here_;
  std::mt19937 random_;
  run_options options_;
  int slave_faults_left_ = 0;
  bool may_stop_ = false;
  bool may_kill_stage_ = false;
  int slave_faults_ = 0;
  bool has_given_up_ = false;
  bool has_killed_stage_ = false;
  std::unique_ptr<simulated_crew> crew_;
  std::shared_ptr<failing_reader> reader_;
  std::unique_ptr<failing_file> buffer_ =
      std::make_unique<failing_file>(one_in<int>(4, 12));
  std::shared_ptr<std::ostream> file_ =
      std::make_shared<std::ostream>(buffer_.get());
  std::shared_ptr<syncnorm::future_result<shared_totals>> done_ =
      std::make_shared<syncnorm::future_result<shared_totals>>();
  std::vector<caf::actor> stages_;
};

} // namespace

TEST_CASE_FIXTURE(simulated_pipeline,
                  "in whatever order the actors of a stream take their "
                  "messages and whoever dies, what comes out is right, what is "
                  "lost is counted, and the end is told") {
  syncnorm::test::check_seeds(syncnorm::test::schedules(),
                              [&](std::uint32_t seed) {
                                return stream_run{*this, seed}.run();
                              });
}
