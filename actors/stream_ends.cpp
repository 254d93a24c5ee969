#include "stream_ends.hpp"

#include <utility>
#include <vector>

namespace syncnorm::detail {

stream_ends::stream_ends(batch_norm_slave_actor::base* self,
                         caf::timespan deadline, on_failure failed)
    : self_{self},
      deadline_{deadline},
      failed_{std::move(failed)},
      waiter_{spawn_stream_waiter(self->system())} {}

void stream_ends::when_done(stream_work work, on_end then) {
  auto id = ++last_id_;
  outstanding_.emplace(id, std::move(then));
  auto answer = next_answer(self_);
  detail::request_within(self_, deadline_, waiter_, await_stream_atom_v, id,
                         std::move(work))
      .then(
          [this, answer](std::uint64_t done) {
            end_timer(self_, answer);
            ended(done, {});
          },
          [this, answer, id](const caf::error& reason) {
            end_timer(self_, answer);
            ended(id, explain_stream_error(reason, deadline_));
          });
}

void stream_ends::keep(stream_work work) {
  detail::anon_send(waiter_, await_stream_atom_v, ++last_id_, std::move(work));
}

void stream_ends::ended(std::uint64_t id, const caf::error& reason) {
  if (!outstanding_.contains(id))
    return;
  if (reason != caf::none)
    return failed_(id, reason);
  outstanding_.extract(id).mapped()({});
}

void stream_ends::end_from(std::uint64_t id, const caf::error& reason) {
  std::vector<on_end> calls;
  auto first = outstanding_.lower_bound(id);
  for (auto i = first; i != outstanding_.end(); ++i)
    calls.push_back(std::move(i->second));
  // Erased before the calls, because another pass may begin in them.
  outstanding_.erase(first, outstanding_.end());
  for (auto then = calls.rbegin(); then != calls.rend(); ++then)
    (*then)(reason);
}

void stream_ends::close() {
  end_stream_waiter(std::exchange(waiter_, nullptr));
}

} // namespace syncnorm::detail
