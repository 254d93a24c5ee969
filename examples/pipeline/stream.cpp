#include "stream.hpp"

#include "normalizer.hpp"
#include "score.hpp"

#include <utility>

namespace pipeline {

totals run_stream(caf::actor_system& system,
                  std::shared_ptr<record_reader> reader,
                  const source_options& options, stages owned,
                  const std::string& state_file, score_output scores) {
  auto done = std::make_shared<syncnorm::future_result<shared_totals>>();
  auto writer = std::make_shared<syncnorm::future_writer<shared_totals>>(done);
  auto stop = reader->stop();
  // begin: spawn
  auto first = system.spawn<source, caf::detached>(reader, options);
  auto keeper =
      system.spawn<supervisor, caf::detached>(std::move(owned), state_file);
  auto last = system.spawn<sink, caf::detached>(
      first, keeper, stop, std::move(scores), std::move(writer));
  auto behind = system.spawn<score>(last);
  auto scatter = system.spawn<normalizer>(keeper, first, stop, behind);
  syncnorm::compat::anon_send(first, start_atom_v,
                              caf::actor_cast<caf::actor>(scatter));
  auto result = done->get();
  // end: spawn
  // The actors are linked: one that ends like this takes the others with it.
  // The source may be waiting for input.
  caf::anon_send_exit(scatter, caf::exit_reason::user_shutdown);
  stop->raise(stop_signal::reason::failed);
  auto end = **result;
  if (end.died) {
    caf::scoped_actor self{system};
    self->wait_for(first);
    end.records = reader->counts();
    end.records_lost = end.records.delivered - end.records_out;
  }
  return end;
}

} // namespace pipeline
