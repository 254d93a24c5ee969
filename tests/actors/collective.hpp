#pragma once

#include "tests/actors/outcome.hpp"
#include "tests/actors/system.hpp"

#include <memory>
#include <tuple>
#include <utility>
#include <vector>

namespace syncnorm::test {

/// A master and participants; the test itself sends each of their messages, in
/// any order it likes. Messages from different actors to the master are ordered
/// because all of these are scoped actors of one thread, and `settle` returns
/// when the master has handled everything sent before.
template <class In, class Out>
class collective {
public:
  using master_type = sync_master_actor<In, Out>;
  using pipe_type = slave_pipe<In, Out>;

  collective(caf::actor_system& system, sync_options options,
             sync_callback<In, Out> callback)
      : system_{&system},
        master_{spawn_sync_master<In, Out>(system, std::move(options),
                                           std::move(callback))} {}

  ~collective() {
    caf::anon_send_exit(master_, caf::exit_reason::user_shutdown);
  }

  /// The actor of slave `i`, a new one if the last was killed; 0 means the
  /// owner.
  caf::scoped_actor& actor(std::size_t i) {
    if (actors_.size() <= i)
      actors_.resize(i + 1);
    if (!actors_[i])
      actors_[i] = std::make_unique<caf::scoped_actor>(*system_);
    return *actors_[i];
  }

  /// Ends the actor of slave `i` as if it had died.
  void kill(std::size_t i) {
    actor(i);
    actors_[i].reset();
    settle();
  }

  /// Registers slave `i`.
  outcome<slave_ticket> enlist(std::size_t i, std::int64_t identifier) {
    outcome<slave_ticket> x;
    register_slave(actor(i), master_, identifier)
        .receive([&](slave_ticket& t) { x(t); }, [&](caf::error& e) { x(e); });
    return x;
  }

  pipe_type pipe(std::size_t i) {
    auto x = enlist(i, static_cast<std::int64_t>(i));
    return pipe_type{master_, x.value.value()};
  }

  /// Registers slaves 1 to `n`.
  std::vector<pipe_type> pipes(std::size_t n) {
    std::vector<pipe_type> result;
    for (std::size_t i = 1; i <= n; ++i)
      result.push_back(pipe(i));
    return result;
  }

  /// Sends a message as slave `i` or, with 0, as the owner. The result is a
  /// function that waits for the outcome.
  auto send(pipe_type& from, std::size_t i, In message) {
    return later(from.run_slave(actor(i), std::move(message)));
  }

  auto lead(In message) {
    return later(run_master(actor(0), master_, std::move(message)));
  }

  /// Sends the message with a tag made by the test.
  auto send_tagged(std::size_t i, const round_tag& tag, In message) {
    return later(detail::request(actor(i), master_, run_slave_atom_v, tag,
                                 std::move(message)));
  }

  void settle() {
    std::ignore = nr_slaves();
  }

  std::uint64_t nr_slaves() {
    std::uint64_t n = 0;
    detail::request(actor(0), master_, nr_slaves_atom_v)
        .receive([&](std::uint64_t x) { n = x; }, [](const caf::error&) {});
    return n;
  }

  [[nodiscard]] const master_type& master() const {
    return master_;
  }

private:
  template <class Response>
  static auto later(Response response) {
    return [r = std::make_shared<Response>(std::move(response))]() {
      outcome<Out> x;
      std::move(*r).receive([&](Out& value) { x(std::move(value)); },
                            [&](caf::error& e) { x(e); });
      return x;
    };
  }

  caf::actor_system* system_;
  std::vector<std::unique_ptr<caf::scoped_actor>> actors_;
  master_type master_;
};

} // namespace syncnorm::test
