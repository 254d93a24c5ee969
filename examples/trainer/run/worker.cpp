#include "trainer/run/worker.hpp"

#include "trainer/failure.hpp"
#include "trainer/plan/endpoint.hpp"
#include "trainer/run/error_text.hpp"
#include "trainer/run/this_machine.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/network.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <future>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>

namespace syncnorm::train {

namespace {

using namespace std::chrono_literals;

/// What the host has to say, for the thread that waits for it.
struct news {
  /// This process' number.
  std::promise<std::uint64_t> admitted;
  /// What to tell the user when the run has ended.
  std::promise<std::string> end;
};

/// Speaks for this process with the host.
class porter : public caf::event_based_actor {
public:
  porter(caf::actor_config& config, host_actor host, application app,
         std::shared_ptr<news> out, std::function<bool()> stop)
      : caf::event_based_actor{config},
        host_{std::move(host)},
        app_{std::move(app)},
        out_{std::move(out)},
        stop_{std::move(stop)} {}

  const char* name() const override {
    return "syncnorm.train.porter";
  }

  caf::behavior make_behavior() override {
    compat::monitor(
        this, caf::actor_cast<caf::actor>(host_),
        [this](const caf::actor_addr&, const caf::error&) {
          fail(
              "the serving process is gone, or the connection to it, or it has "
              "heard nothing of this one for its deadline");
        });
    compat::request(this, host_, join_atom_v, app_)
        .then([this](std::uint64_t number) { stay(number); },
              [this](const caf::error& x) { fail(text_of(x)); });
    return {[this](leave_atom) { look_for_stop(); }};
  }

private:
  void stay(std::uint64_t number) {
    number_ = number;
    out_->admitted.set_value(number);
    compat::request(this, host_, stay_atom_v, number)
        .then(
            [this](const std::string& text) { finish(printable(text, 1000)); },
            [this](const caf::error& x) { fail(text_of(x)); });
    look_for_stop();
  }

  void look_for_stop() {
    if (stop_())
      compat::send(this, host_, leave_atom_v, number_);
    else
      compat::delayed_send(this, caf::actor{this}, 100ms, leave_atom_v);
  }

  void finish(std::string text) {
    if (std::exchange(ended_, true))
      return;
    out_->end.set_value(std::move(text));
    quit();
  }

  /// If this process was not admitted, the answer to its request to join is
  /// this failure as well.
  void fail(const std::string& why) {
    if (std::exchange(ended_, true))
      return;
    auto problem = std::make_exception_ptr(failure{printable(why, 1000)});
    if (number_ == 0)
      out_->admitted.set_exception(problem);
    out_->end.set_exception(problem);
    quit();
  }

  host_actor host_;
  application app_;
  std::shared_ptr<news> out_;
  std::function<bool()> stop_;
  std::uint64_t number_ = 0;
  bool ended_ = false;
};

using clock = std::chrono::steady_clock;

using stop_function = std::function<bool()>;

/// Waits for `x`, and checks for Ctrl-C meanwhile.
/// @throws failure with the text `stopped` if that comes first.
template <class T>
T await(std::future<T> x, const stop_function& stop,
        const std::string& stopped) {
  while (x.wait_for(100ms) != std::future_status::ready)
    if (stop())
      throw failure{stopped};
  return x.get();
}

/// Where to connect to, and for how long to try.
struct target {
  endpoint where;
  bool insecure = false;
  clock::time_point until;
};

/// The result of trying to connect.
struct attempts {
  caf::expected<host_actor> last;
  /// Why it failed before, if not for the final reason.
  std::string earlier;
};

/// Tries until the host answers, it is too late, or trying is useless; a host
/// that is not there yet may still come.
attempts try_to_connect(caf::actor_system& system, const target& to,
                        const stop_function& stop) {
  std::string reason, earlier;
  for (;;) {
    auto left = std::max<clock::duration>(to.until - clock::now(), 100ms);
    auto host =
        remote_handle<host_actor>(system, to.where.host, to.where.port,
                                  {.patience = left, .insecure = to.insecure});
    if (!host)
      if (auto text = text_of(host.error()); text != reason)
        earlier = std::exchange(reason, text);
    if (host || code_of(host.error()) == errc::invalid_argument || stop()
        || clock::now() + 100ms >= to.until)
      return {host, earlier};
    std::this_thread::sleep_for(100ms);
  }
}

/// As `try_to_connect`, on a thread of its own: an attempt cannot be
/// interrupted.
std::future<attempts> begin_to_connect(caf::actor_system& system,
                                       const target& to,
                                       const stop_function& stop) {
  auto out = std::make_shared<std::promise<attempts>>();
  auto result = out->get_future();
  system.spawn<caf::detached>([=, &system](caf::event_based_actor*) {
    try {
      out->set_value(try_to_connect(system, to, stop));
    } catch (...) {
      out->set_exception(std::current_exception());
    }
  });
  return result;
}

/// Why nobody has answered. The last attempt may have found nobody where an
/// earlier one was refused, or may have had too little time.
std::string silence_text(const endpoint& where, const attempts& made) {
  if (!is_known_host(where.host))
    return fmt::format("the name {} could not be resolved", where.host);
  auto text = text_of(made.last.error());
  return made.earlier.empty()
             ? text
             : fmt::format("{}; before: {}", text, made.earlier);
}

host_actor connect(caf::actor_system& system, const settings& options,
                   const stop_function& stop) {
  auto where = parse_endpoint("join", options.join);
  auto until = clock::now()
               + std::chrono::duration_cast<clock::duration>(
                   std::chrono::duration<double>{options.patience});
  auto stopped =
      fmt::format("--join: {}: stopped before it answered", options.join);
  auto made =
      await(begin_to_connect(system, {where, options.insecure, until}, stop),
            stop, stopped);
  if (made.last)
    return *made.last;
  if (stop())
    throw failure{stopped};
  if (code_of(made.last.error()) == errc::invalid_argument)
    throw failure{fmt::format("--join: {}", text_of(made.last.error()))};
  throw failure{fmt::format("--join: {} did not answer for {:g} s: {}",
                            to_string(where), options.patience,
                            silence_text(where, made))};
}

/// Made up anew for each process.
std::uint64_t some_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

} // namespace

std::string process_name() {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  return fmt::format("{}:{}", host.data(), ::getpid());
}

std::string take_part(caf::actor_system& system, const settings& options,
                      const application& app,
                      const std::function<void(const std::string&)>& note,
                      const std::function<bool()>& stop) {
  auto out = std::make_shared<news>();
  auto end = out->end.get_future();
  auto own = app;
  own.start = some_number();
  system.spawn<porter>(connect(system, options, stop), own, out, stop);
  std::uint64_t number = 0;
  try {
    number = await(out->admitted.get_future(), stop,
                   "stopped before this process was admitted");
  } catch (const failure& x) {
    throw failure{fmt::format("--join: {}: {}", options.join, x.what())};
  }
  note(fmt::format("joined {} as process {}", options.join, number));
  return end.get();
}

} // namespace syncnorm::train
