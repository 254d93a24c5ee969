#include "trainer/run/gradient_exchange.hpp"

#include "trainer/run/error_text.hpp"
#include "trainer/run/gradient_sum.hpp"

#include "syncnorm/errors.hpp"

#include <utility>

namespace syncnorm::train {

namespace {

[[noreturn]] void fail(const caf::error& reason) {
  throw error{code_of(reason).value_or(errc::master_down), text_of(reason)};
}

} // namespace

gradient_exchange::gradient_exchange(caf::actor_system& system,
                                     caf::timespan deadline)
    : role_{std::make_unique<owner>(
        system, sync_options{.layer = gradient_layer, .deadline = deadline},
        sync_reduction<gradient_part, gradient_sum>{merge_gradients,
                                                    finish_gradients})},
      master_{std::get<0>(role_)->handle()} {}

gradient_exchange::gradient_exchange(caf::actor_system& system,
                                     const gradient_master& master,
                                     std::size_t index)
    : master_{master} {
  auto joined = register_slave_thread<gradient_part, gradient_sum>(
      system, master, static_cast<std::int64_t>(index));
  if (!joined)
    fail(joined.error());
  role_ = std::make_unique<pipe>(std::move(*joined));
}

gradient_sum gradient_exchange::run(gradient_part part) {
  auto sum = role_.index() == 0
                 ? std::get<0>(role_)->run_master(std::move(part))
                 : std::get<1>(role_)->run_slave(std::move(part));
  if (!sum)
    fail(sum.error());
  return std::move(*sum);
}

void gradient_exchange::give_up(const std::string& why) {
  // A round without its leader cannot be completed: the master goes, and with
  // it everybody's round.
  if (role_.index() == 0)
    std::get<0>(role_).reset();
  else
    std::get<1>(role_)->give_up(why);
}

} // namespace syncnorm::train
