#include "trainer/run/trainer.hpp"

#include "trainer/failure.hpp"
#include "trainer/model/archive.hpp"
#include "trainer/output/atomic_file.hpp"
#include "trainer/output/complaint.hpp"
#include "trainer/output/output_file.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/model_state.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

namespace syncnorm::train {

namespace {

using clock = std::chrono::steady_clock;

/// Share of a step that the replicas, on average, spent waiting.
double mean_waiting(const std::vector<step_report>& reports) {
  double sum = 0;
  for (const auto& report : reports)
    sum += report.seconds > 0 ? report.waiting / report.seconds : 0;
  return sum / static_cast<double>(reports.size());
}

/// Whether `news` already tells `why`, apart from the name of a process before
/// it.
bool tells(const std::vector<std::string>& news, const std::string& why) {
  auto name = why.find(": ");
  return name != std::string::npos
         && std::ranges::any_of(news, [&](const auto& line) {
              return line.ends_with(why.substr(name + 2));
            });
}

} // namespace

std::string checkpoint_file(const settings& options) {
  return (std::filesystem::path{options.checkpoint} / "checkpoint.pt").string();
}

std::optional<run_state> find_state(const settings& options,
                                    const dataset& data) {
  if (options.checkpoint.empty())
    return std::nullopt;
  auto file = checkpoint_file(options);
  auto exists = std::filesystem::exists(file);
  if (!options.resume && exists)
    throw failure{fmt::format("{}: there is a checkpoint already: go on from "
                              "it by --resume, or choose another folder",
                              file)};
  if (!options.resume)
    return std::nullopt;
  if (!exists)
    throw failure{
        fmt::format("--resume: expected a checkpoint {}, found none", file)};
  auto state = parse_state(unpack_run(read_whole(file), file), file);
  require_same_run(state, initial_state(options, data), file);
  if (!epoch_plan{data.training.size(), options.batch}.has_border_at(
          state.position))
    throw failure{fmt::format("{}: expected the position of a batch among {} "
                              "samples, found {}",
                              file, data.training.size(), state.position)};
  return state;
}

trainer::trainer(const settings& options, const dataset& data, fleet& processes,
                 progress_display& display, std::function<bool()> stop)
    : options_{options},
      data_{data},
      processes_{processes},
      replicas_{processes.replicas()},
      display_{display},
      stop_{std::move(stop)},
      plan_{data.training.size(), options.batch},
      state_{initial_state(options, data)} {
  auto found = find_state(options, data);
  if (!options.checkpoint.empty())
    require_writable_folder(options.checkpoint);
  report_.emplace(options, found ? found->step : 0, found ? found->epoch : 0);
  if (!report_->gap().empty())
    complain(report_->gap());
  if (found) {
    state_ = *found;
    saved_step_ = found->step;
    auto file = checkpoint_file(options);
    // The others get the state when the replicas are assembled.
    replicas_.lead_with(
        unpack(read_whole(file), file, options, data.training.shape));
    display_.note(fmt::format("resumed after step {} from {}", state_.step,
                              checkpoint_file(options)));
  } else {
    save();
  }
}

std::string trainer::run() {
  while (state_.epoch < options_.epochs) {
    auto before = state_.step;
    try {
      advance();
    } catch (const replica_failure& x) {
      recover(x);
      // A missing replica may have been lost after the step was done.
      if (state_.step == before)
        continue;
    }
    stopping_ = stopping_ || stop_();
    // The replicas are in the next step already.
    if (replicas_.has_begun())
      continue;
    if (!report_failure_.empty())
      give_up(report_failure_);
    if (stopping_ || is_checkpoint_due(state_.step, state_.position == 0))
      save();
    if (stopping_ && state_.epoch < options_.epochs)
      return stop_here();
  }
  return conclude();
}

void trainer::advance() {
  if (!replicas_.has_begun()) {
    admit();
    if (!assembled_)
      assemble();
  }
  if (!is_epoch_done())
    step();
  if (is_epoch_done())
    finish_epoch();
}

void trainer::assemble() {
  auto messages = replicas_.assemble();
  if (processes_.size() > 1)
    display_.note(
        fmt::format("{} messages a round and layer to this process", messages));
  replicas_.level();
  assembled_ = true;
}

bool trainer::is_epoch_done() const {
  return state_.position == data_.training.size();
}

void trainer::admit() {
  // A Ctrl-C that reaches all processes makes them leave: this one ends the run
  // first, after one more step with them.
  if (!processes_.has_changed() || stop_())
    return;
  if (auto news = processes_.update(); !news.empty())
    lose(news, {});
}

void trainer::recover(const replica_failure& problem) {
  processes_.drop_silent();
  auto news = processes_.update();
  if (!news.empty())
    return lose(news, tells(news, problem.what()) ? "" : problem.what());
  // All are there: it was not a process that failed, but a replica.
  processes_.drop(problem.culprits());
  news = processes_.update();
  if (news.empty())
    give_up(problem.what());
  lose(news, {});
}

void trainer::lose(const std::vector<std::string>& news,
                   const std::string& why) {
  assembled_ = false;
  if (options_.on_failure == failure_kind::stop)
    give_up(fmt::format("{}{}{}", fmt::join(news, "; "),
                        why.empty() ? "" : ": ", why));
  for (const auto& line : news)
    display_.note(fmt::format("after step {}: {}", state_.step, line));
}

void trainer::give_up(const std::string& why) {
  auto text = fmt::format("{}; stopped after step {}", why, state_.step);
  if (options_.checkpoint.empty())
    throw failure{text};
  try {
    save();
  } catch (const not_flushed& x) {
    throw failure{fmt::format("{}; {}", text, x.what())};
  } catch (const std::exception& x) {
    throw failure{fmt::format("{}, which is not saved: {}", text, x.what())};
  }
  throw failure{fmt::format("{}; go on with --resume from {}", text,
                            checkpoint_file(options_))};
}

std::string trainer::stop_here() {
  auto text =
      fmt::format("stopped after step {}{}", state_.step,
                  options_.checkpoint.empty()
                      ? std::string{"; without --checkpoint nothing was saved"}
                      : fmt::format("; go on with --resume from {}",
                                    checkpoint_file(options_)));
  display_.note(text);
  finish_report();
  return text;
}

double trainer::rate_after(std::size_t steps) const {
  return learning_rate(options_.schedule, options_.rate, steps,
                       plan_.steps() * options_.epochs);
}

step_plan trainer::plan_of(std::size_t step, std::size_t begin) const {
  auto batch = plan_.batch_at(begin);
  return {state_.epoch, step, batch.begin, batch.end, rate_after(step - 1)};
}

step_plan trainer::next_step() const {
  return plan_of(state_.step + 1, state_.position);
}

bool trainer::must_pause_after(const step_plan& plan) const {
  auto epoch_ended = plan.end == data_.training.size();
  return stopping_ || !report_failure_.empty() || epoch_ended
         || processes_.has_changed()
         || is_checkpoint_due(plan.step, epoch_ended);
}

void trainer::step() {
  auto plan = next_step();
  if (!replicas_.has_begun()) {
    since_ = clock::now();
    replicas_.begin_step(plan);
  }
  // A replica that is done with this step then has the next one already, and
  // need not wait for it.
  if (!must_pause_after(plan))
    replicas_.begin_step(plan_of(plan.step + 1, plan.end));
  try {
    end_step();
  } catch (const replica_failure&) {
    // The next step fails as well, unless replica 0 has done both and only
    // their reports are missing.
    while (replicas_.has_begun())
      try {
        end_step();
      } catch (const replica_failure&) {
      }
    throw;
  }
}

void trainer::end_step() {
  auto plan = next_step();
  try {
    auto reports = replicas_.end_step();
    check_finite(reports);
    account(plan, reports);
  } catch (const replica_failure& x) {
    // The missing replicas were lost after the gradients were added.
    if (x.leader()) {
      check_finite({*x.leader()});
      account(plan, {*x.leader()});
    }
    throw;
  }
}

void trainer::account(const step_plan& plan,
                      const std::vector<step_report>& reports) {
  auto now = clock::now();
  std::chrono::duration<double> time = now - since_;
  since_ = now;
  metrics_row row;
  row.epoch = state_.epoch + 1;
  row.step = state_.step + 1;
  row.learning_rate = plan.learning_rate;
  row.samples = plan.end - plan.begin;
  row.loss = reports[0].loss;
  row.seconds = time.count();
  row.waiting = mean_waiting(reports);
  state_.step += 1;
  state_.position = plan.end;
  state_.loss += row.loss * static_cast<double>(row.samples);
  state_.seconds += row.seconds;
  state_.waiting += row.waiting * row.seconds;
  record(row);
  display_.show(progress());
}

void trainer::record(const metrics_row& row) {
  if (!report_failure_.empty())
    return;
  try {
    report_->add(row);
  } catch (const std::exception& x) {
    // The replicas may be in the next step: `run` ends the training after it.
    report_failure_ =
        fmt::format("{}; the rows from {} {} on are lost", first_line(x.what()),
                    row.is_epoch() ? "epoch" : "step",
                    row.is_epoch() ? row.epoch : row.step);
  }
}

void trainer::check_finite(const std::vector<step_report>& reports) const {
  if (reports[0].sum_finite)
    return;
  std::vector<std::size_t> bad;
  for (std::size_t i = 0; i < reports.size(); ++i)
    if (!reports[i].finite)
      bad.push_back(i);
  // Every part is finite and the sum is not: all of them together.
  if (bad.empty()) {
    bad.resize(reports.size());
    std::iota(bad.begin(), bad.end(), std::size_t{0});
  }
  throw failure{fmt::format(
      "step {}: the loss or the gradient of replica{} {} is not finite (loss "
      "{}){}",
      state_.step + 1, bad.size() == 1 ? "" : "s", fmt::join(bad, ", "),
      reports[0].loss, checkpoint_before())};
}

progress_state trainer::progress() const {
  progress_state result;
  result.epoch = state_.epoch + 1;
  result.epochs = options_.epochs;
  result.done = state_.position;
  result.samples = data_.training.size();
  result.seconds = state_.seconds;
  result.evaluation = evaluation_time_.count();
  if (state_.position > 0)
    result.loss = state_.loss / static_cast<double>(state_.position);
  if (state_.seconds > 0)
    result.waiting = state_.waiting / state_.seconds;
  return result;
}

evaluation trainer::evaluate() {
  // With local norm every replica has running statistics of its own; the model
  // that is saved and tested is replica 0's.
  auto replicas = options_.norm == norm_kind::local ? 1 : replicas_.size();
  auto begin = clock::now();
  auto result = replicas_.evaluate(data_.held_out.size(), replicas);
  evaluation_time_ = clock::now() - begin;
  return result;
}

void trainer::finish_epoch() {
  replicas_.require_same_weights();
  auto result = evaluate();
  auto count = static_cast<double>(result.samples);
  if (!std::isfinite(result.loss))
    throw failure{fmt::format(
        "epoch {}: the held-out loss is not finite ({}){}", state_.epoch + 1,
        result.loss / count, checkpoint_before())};
  auto now = progress();
  metrics_row row;
  row.epoch = state_.epoch + 1;
  row.step = state_.step;
  row.learning_rate = rate_after(state_.step);
  row.samples = state_.position;
  row.loss = now.loss;
  row.held_out_loss = result.loss / count;
  row.held_out_accuracy = static_cast<double>(result.correct) / count;
  row.seconds = now.seconds;
  row.waiting = now.waiting;
  record(row);
  display_.finish(now, row);
  evaluated_ = result;
  state_.epoch += 1;
  state_.position = 0;
  state_.loss = 0;
  state_.seconds = 0;
  state_.waiting = 0;
}

bool trainer::is_checkpoint_due(std::size_t step, bool epoch_ended) const {
  if (state_.epoch == options_.epochs)
    return true;
  return options_.every == 0 ? epoch_ended : step % options_.every == 0;
}

void trainer::save() {
  if (options_.checkpoint.empty())
    return;
  try {
    write_checkpoint();
  } catch (const not_flushed& x) {
    throw not_flushed{fmt::format("{}; the checkpoint {}, of step {}, may be "
                                  "lost when the machine stops",
                                  x.what(), checkpoint_file(options_),
                                  state_.step)};
  } catch (const std::exception& x) {
    throw failure{first_line(x.what()) + checkpoint_before()};
  }
  saved_step_ = state_.step;
}

void trainer::write_checkpoint() {
  auto state = replicas_.state();
  if (auto what = find_not_finite(state); !what.empty())
    throw failure{fmt::format("step {}: some of the {} are not finite, and "
                              "none are saved",
                              state_.step, what)};
  write_atomically(
      output_file("--checkpoint", checkpoint_file(options_)),
      pack(state, to_text(state_), options_, data_.training.shape));
}

std::string trainer::checkpoint_before() const {
  auto file = checkpoint_file(options_);
  std::error_code ignored;
  if (!saved_step_ || !std::filesystem::exists(file, ignored))
    return "";
  return fmt::format("; the checkpoint before it is {}, of step {}", file,
                     *saved_step_);
}

std::string trainer::conclude() {
  // A run that continues from its last step has no evaluation.
  auto result = evaluated_;
  while (!result)
    try {
      // A process that has come since the last step has the initial weights.
      if (!assembled_)
        assemble();
      result = evaluate();
    } catch (const replica_failure& x) {
      recover(x);
    }
  auto text = fmt::format("held-out accuracy {:.2f} % ({} of {})",
                          100 * static_cast<double>(result->correct)
                              / static_cast<double>(result->samples),
                          result->correct, result->samples);
  display_.note(text);
  finish_report();
  return text;
}

void trainer::finish_report() {
  if (auto chart = report_->finish())
    display_.note(fmt::format("chart in {}", chart->string()));
}

} // namespace syncnorm::train
