#include "stream.hpp"

#include "normalizer.hpp"
#include "score.hpp"
#include "sink.hpp"

#include <syncnorm/errors.hpp>

#include <utility>

namespace pipeline {

totals run_stream(caf::actor_system& system,
                  std::shared_ptr<record_reader> reader,
                  const source_options& options, stages owned,
                  const std::string& state_file,
                  std::shared_ptr<std::ostream> scores) {
  auto done = std::make_shared<syncnorm::future_result<shared_totals>>();
  auto writer = std::make_shared<syncnorm::future_writer<shared_totals>>(done);
  // begin: spawn
  auto first = system.spawn<source, caf::detached>(std::move(reader), options);
  auto last = system.spawn<sink, caf::detached>(first, std::move(scores),
                                                std::move(writer));
  auto behind = system.spawn<score>(last);
  auto keeper =
      system.spawn<supervisor, caf::detached>(std::move(owned), state_file);
  auto scatter = system.spawn<normalizer>(keeper, first, behind);
  syncnorm::detail::anon_send(first, start_atom_v,
                              caf::actor_cast<caf::actor>(scatter));
  auto result = done->get();
  // end: spawn
  // They are linked: one that ends like this takes the others with it.
  caf::anon_send_exit(scatter, caf::exit_reason::user_shutdown);
  if (result)
    return **result;
  totals failed;
  failed.fail("a stage has died: " + syncnorm::describe(result.error()));
  return failed;
}

} // namespace pipeline
