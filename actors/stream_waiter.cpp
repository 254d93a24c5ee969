#include "syncnorm/detail/stream_waiter.hpp"

#include "syncnorm/errors.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <utility>

namespace syncnorm::detail {

namespace {

class stream_waiter final : public stream_waiter_actor::base {
public:
  stream_waiter(caf::actor_config& config, caf::actor owner)
      : stream_waiter_actor::base{config},
        owner_{std::move(owner)} {}

  const char* name() const override {
    return "syncnorm.stream_waiter";
  }

  behavior_type make_behavior() override {
    if (owner_)
      detail::monitor(this, owner_,
                      [this](const caf::actor_addr&, const caf::error&) {
                        this->quit(caf::exit_reason::user_shutdown);
                      });
    owner_ = nullptr;
    return {
        [](await_stream_atom, std::uint64_t ticket,
           const stream_work& work) -> caf::result<std::uint64_t> {
          try {
            work.end.synchronize();
            return ticket;
          } catch (const error& x) {
            return to_caf_error(x);
          } catch (const std::exception& x) {
            return make_error(errc::device_failure, x.what());
          }
        },
    };
  }

private:
  caf::actor owner_;
};

} // namespace

stream_waiter_actor spawn_stream_waiter(caf::actor_system& system,
                                        const caf::actor& owner) {
  return system.spawn<stream_waiter, caf::detached>(owner);
}

stream_watch::stream_watch(caf::actor_system& system)
    : system_{&system},
      waiter_{spawn_stream_waiter(system, nullptr)} {}

stream_watch::~stream_watch() {
  caf::anon_send_exit(waiter_, caf::exit_reason::user_shutdown);
}

void stream_watch::wait(stream_work work, caf::timespan timeout) {
  caf::scoped_actor self{*system_};
  caf::error failure;
  detail::request_within(self, timeout, waiter_, await_stream_atom_v,
                         std::uint64_t{0}, std::move(work))
      .receive([](std::uint64_t) {},
               [&](caf::error& reason) { failure = std::move(reason); });
  if (failure == caf::none)
    return;
  failure = explain_stream_error(failure, timeout);
  throw error{code_of(failure).value_or(errc::device_failure),
              text_of(failure)};
}

caf::error explain_stream_error(const caf::error& reason,
                                caf::timespan timeout) {
  if (code_of(reason))
    return reason;
  if (reason == caf::sec::request_timeout)
    return make_error(
        errc::deadline_exceeded,
        fmt::format("waited {:.3g} s for a device to finish",
                    std::chrono::duration<double>(timeout).count()));
  return make_error(errc::device_failure,
                    "the actor that waits for a device is gone: "
                        + describe(reason));
}

} // namespace syncnorm::detail
