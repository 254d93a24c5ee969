#include "stream_waiter.hpp"

#include "syncnorm/caf_error.hpp"
#include "syncnorm/detail/caf/logger_guard.hpp"

#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <limits>
#include <utility>

namespace syncnorm::detail {

namespace {

/// The id of a message that is not answered: after it, the waiter ends. The
/// waiter first waits for work sent before, because its memory is in use; an
/// exit message, or news of the owner's end, would overtake that work.
constexpr auto end_id = std::numeric_limits<std::uint64_t>::max();

class stream_waiter final : public stream_waiter_actor::base {
public:
  using stream_waiter_actor::base::base;

  const char* name() const override {
    return "syncnorm.stream_waiter";
  }

  behavior_type make_behavior() override {
    return {
        [this](await_stream_atom, std::uint64_t id,
               const stream_work& work) -> caf::result<std::uint64_t> {
          if (id == end_id) {
            this->quit(caf::exit_reason::user_shutdown);
            return id;
          }
          try {
            work.end.synchronize();
            return id;
          } catch (const error& x) {
            return to_caf_error(x);
          } catch (const std::exception& x) {
            return make_error(errc::device_failure, x.what());
          }
        },
    };
  }
};

} // namespace

stream_waiter_actor spawn_stream_waiter(caf::actor_system& system) {
  detail::logger_guard guard;
  return system.spawn<stream_waiter, caf::detached>();
}

void end_stream_waiter(const stream_waiter_actor& waiter) {
  if (waiter)
    detail::anon_send(waiter, await_stream_atom_v, end_id, stream_work{});
}

stream_watch::stream_watch(caf::actor_system& system)
    : system_{&system},
      waiter_{spawn_stream_waiter(system)} {}

stream_watch::~stream_watch() {
  end_stream_waiter(waiter_);
}

void stream_watch::wait(stream_work work, caf::timespan timeout) {
  caf::error failure;
  // The thread may be one of libtorch's.
  detail::logger_guard guard;
  caf::scoped_actor self{*system_};
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
