#include "sink.hpp"

#include <syncnorm/caf_error.hpp>
#include <syncnorm/compat.hpp>

#include <cerrno>
#include <cstring>
#include <utility>

namespace pipeline {

sink::sink(caf::actor_config& config, source_actor source,
           supervisor_actor supervisor, std::shared_ptr<stop_signal> stop,
           score_output out,
           std::shared_ptr<syncnorm::future_writer<shared_totals>> done)
    : sink_actor::base{config},
      source_{std::move(source)},
      supervisor_{std::move(supervisor)},
      stop_{std::move(stop)},
      out_{std::move(out)},
      done_{std::move(done)} {}

void sink::on_exit() {
  source_ = nullptr;
  supervisor_ = nullptr;
  if (!done_)
    return;
  // The end of the stream has not come.
  totals seen;
  seen.died = true;
  seen.fail("a stage has died");
  seen.records_out = records_;
  done_->put(std::make_shared<const totals>(std::move(seen)));
}

sink::behavior_type sink::make_behavior() {
  return {
      [this](scores_atom, std::uint64_t number,
             const syncnorm::double_array& scores) { write(number, scores); },
      [this](end_atom, const totals& x) { finish(x); },
  };
}

void sink::write(std::uint64_t number, const syncnorm::double_array& scores) {
  if (number != batches_++)
    fail("sink: expected batch " + std::to_string(batches_ - 1) + ", got "
         + std::to_string(number));
  if (out_.stream && failure_.empty())
    write_lines(scores);
  (failure_.empty() ? records_ : lost_) += scores.size();
  syncnorm::compat::send(this, source_, credit_atom_v);
}

void sink::write_lines(const syncnorm::double_array& scores) {
  errno = 0;
  auto record = records_;
  for (auto value : scores)
    *out_.stream << record++ << ',' << value << '\n';
  if (out_.stream->flush())
    return;
  // A stream does not tell the cause; the system's call, if one failed, does.
  auto cause = errno == 0 ? "" : std::string{": "} + std::strerror(errno);
  fail(out_.name + ": the scores cannot be written" + cause);
}

void sink::fail(const std::string& why) {
  if (!failure_.empty())
    return;
  failure_ = why;
  syncnorm::compat::send(this, source_, stop_atom_v, why);
  stop_->raise(stop_signal::reason::failed);
}

void sink::finish(totals x) {
  if (!failure_.empty())
    x.fail(failure_);
  x.records_out = records_;
  x.records_lost += lost_;
  if (!x.failure.empty())
    return report(std::move(x));
  auto end = [this, x](const std::string& problem) mutable {
    x.fail(problem);
    report(std::move(x));
  };
  syncnorm::compat::request(this, supervisor_, dismiss_atom_v)
      .then(end, [end](const caf::error& reason) mutable {
        end(syncnorm::describe(reason));
      });
}

void sink::report(totals x) {
  std::exchange(done_, nullptr)
      ->put(std::make_shared<const totals>(std::move(x)));
}

} // namespace pipeline
