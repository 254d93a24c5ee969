#pragma once

// The one file that knows CAF versions: it gives 0.17.6 and 1.x one spelling.
// Tests CAF_MAJOR_VERSION, because 1.0 and 1.1 define CAF_VERSION without its
// major digit.

#include <caf/all.hpp>
#include <caf/binary_deserializer.hpp>
#include <caf/binary_serializer.hpp>
#include <caf/io/all.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#if CAF_MAJOR_VERSION == 0
#define SYNCNORM_CAF_LEGACY 1
#include <caf/logger.hpp>
#include <caf/meta/type_name.hpp>
#include <caf/scheduler/abstract_coordinator.hpp>
#else
#define SYNCNORM_CAF_LEGACY 0
#include <caf/anon_mail.hpp>
#include <caf/caf_main.hpp>
#include <caf/detail/meta_object.hpp>
#include <caf/init_global_meta_objects.hpp>
#include <caf/logger.hpp>
#include <caf/scheduler.hpp>
#include <caf/telemetry/metric_registry.hpp>
#endif

namespace syncnorm::detail {

// -- typed actors -------------------------------------------------------------

template <class Signature>
struct signature;

template <class... Results, class... Args>
struct signature<caf::result<Results...>(Args...)> {
#if SYNCNORM_CAF_LEGACY
  using type = typename caf::replies_to<Args...>::template with<Results...>;
#else
  using type = caf::result<Results...>(Args...);
#endif
};

/// A typed actor handle from signatures in the style of CAF 1.x:
/// `caf::result<Results...>(Args...)`.
template <class... Signatures>
using typed_actor = caf::typed_actor<typename signature<Signatures>::type...>;

// -- inspection ---------------------------------------------------------------

template <class T>
struct named_field {
  const char* name;
  T& value;
};

template <class T>
named_field<T> field(const char* name, T& value) {
  return {name, value};
}

/// The body of an `inspect` overload for a message type without invariants.
template <class Inspector, class T, class... Fields>
auto inspect_object(Inspector& f, [[maybe_unused]] T& x, const char* type_name,
                    named_field<Fields>... fields) {
#if SYNCNORM_CAF_LEGACY
  return f(caf::meta::type_name(type_name), fields.value...);
#else
  return f.object(x).pretty_name(type_name).fields(
      f.field(fields.name, fields.value)...);
#endif
}

// -- sending ------------------------------------------------------------------

// `self` is a pointer to an actor or a `caf::scoped_actor`. Call these
// functions qualified: CAF's own of the same name are found by their arguments.

template <class Self, class Handle, class... Ts>
void send(Self&& self, const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  self->send(to, std::forward<Ts>(xs)...);
#else
  self->mail(std::forward<Ts>(xs)...).send(to);
#endif
}

template <class Handle, class... Ts>
void anon_send(const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  caf::anon_send(to, std::forward<Ts>(xs)...);
#else
  caf::anon_mail(std::forward<Ts>(xs)...).send(to);
#endif
}

template <class Self, class Handle, class... Ts>
void delayed_send(Self&& self, const Handle& to, caf::timespan delay,
                  Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  self->delayed_send(to, delay, std::forward<Ts>(xs)...);
#else
  self->mail(std::forward<Ts>(xs)...).delay(delay).send(to);
#endif
}

/// What an actor runs on.
#if SYNCNORM_CAF_LEGACY
using worker_type = caf::execution_unit;
#else
using worker_type = caf::scheduler;
#endif

/// What an actor's `enqueue` returns.
#if SYNCNORM_CAF_LEGACY
using enqueue_result = void;
#else
using enqueue_result = bool;
#endif

/// What `enqueue` gets when the network's thread itself brings a message, as it
/// does after `read_where_received`; null without a network.
inline worker_type* network_worker(caf::actor_system& system) {
  return system.has_middleman() ? &system.middleman().backend() : nullptr;
}

/// The calling thread in the place of a CAF worker, for one actor: what
/// `send_and_lend` runs on. Other actors that get work on the way are left to
/// the worker whose thread this is, or to the system's own workers.
class lent_thread final : public worker_type {
public:
  explicit lent_thread(caf::actor_system& system, worker_type* worker = nullptr)
      : home_{&system},
        worker_{worker} {
#if SYNCNORM_CAF_LEGACY
    system_ = &system;
#endif
  }

#if SYNCNORM_CAF_LEGACY
  void exec_later(caf::resumable* job) override {
    take_or_pass_on(job);
  }
#else
  void schedule(caf::resumable* job) override {
    pass_on(job);
  }

  void delay(caf::resumable* job) override {
    take_or_pass_on(job);
  }

  void start() override {}

  void stop() override {}
#endif

  /// Runs the actor that was woken, if one was, until its mailbox is empty.
  void run() {
    running_ = true;
    if (!job_)
      return;
    // Enough for a round of many participants; more goes to CAF's workers.
    constexpr std::size_t max_messages = 1000;
    if (job_->resume(this, max_messages) == caf::resumable::resume_later)
      pass_on(job_);
    else
      caf::intrusive_ptr_release(job_);
  }

private:
  void take_or_pass_on(caf::resumable* job) {
    if (running_ || job_)
      pass_on(job);
    else
      job_ = job;
  }

  void pass_on(caf::resumable* job) {
#if SYNCNORM_CAF_LEGACY
    if (worker_ != nullptr)
      worker_->exec_later(job);
    else
      home_->scheduler().enqueue(job);
#else
    (worker_ != nullptr ? *worker_ : home_->scheduler()).schedule(job);
#endif
  }

  caf::actor_system* home_;
  worker_type* worker_;
  caf::resumable* job_ = nullptr;
  bool running_ = false;
};

/// Sends to an actor of this process from an ordinary thread. If the actor was
/// idle, it runs here and now, on the calling thread, as it would on a worker
/// of CAF's: no other thread has to wake up first, which takes tens of
/// microseconds. CAF sees to it that an actor never runs in two places.
template <class Handle, class... Ts>
void send_and_lend(caf::actor_system& system, const Handle& to, Ts&&... xs) {
  lent_thread here{system};
  auto* receiver = caf::actor_cast<caf::abstract_actor*>(to);
#if SYNCNORM_CAF_LEGACY
  receiver->enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(),
                                              {}, std::forward<Ts>(xs)...),
                    &here);
#else
  receiver->enqueue(caf::make_mailbox_element(nullptr, caf::make_message_id(),
                                              std::forward<Ts>(xs)...),
                    &here);
#endif
  here.run();
}

/// Requests without a timer of CAF's: the master owes an answer by its own
/// deadline.
template <class Self, class Handle, class... Ts>
auto request(Self&& self, const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  return self->request(to, caf::infinite, std::forward<Ts>(xs)...);
#else
  return self->mail(std::forward<Ts>(xs)...).request(to, caf::infinite);
#endif
}

/// What a handler returns that leaves the answer to `to`.
template <class Self, class Handle, class... Ts>
auto delegate(Self&& self, const Handle& to, Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  return self->delegate(to, std::forward<Ts>(xs)...);
#else
  return self->mail(std::forward<Ts>(xs)...).delegate(to);
#endif
}

/// Requests that fail with `caf::sec::request_timeout` when the time is over.
template <class Self, class Handle, class... Ts>
auto request_within(Self&& self, caf::timespan timeout, const Handle& to,
                    Ts&&... xs) {
#if SYNCNORM_CAF_LEGACY
  return self->request(to, timeout, std::forward<Ts>(xs)...);
#else
  return self->mail(std::forward<Ts>(xs)...).request(to, timeout);
#endif
}

/// Calls `on_down(caf::actor_addr, caf::error)` when `participant` has
/// terminated. CAF 0.17 keeps one handler an actor: pass the same callable.
template <class Self, class OnDown>
void monitor(Self* self, const caf::actor& participant, OnDown on_down) {
#if SYNCNORM_CAF_LEGACY
  self->set_down_handler(
      [on_down](const caf::down_msg& msg) { on_down(msg.source, msg.reason); });
  self->monitor(participant);
#else
  auto addr = participant.address();
  self->monitor(participant, [on_down, addr](const caf::error& reason) {
    on_down(addr, reason);
  });
#endif
}

// -- configuration ------------------------------------------------------------

/// Registers the message types of `IdBlocks`; call from the constructor of the
/// configuration class. On 1.x, `init_types` has done it before.
template <class... IdBlocks>
void add_types([[maybe_unused]] caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  (config.add_message_types<IdBlocks>(), ...);
#endif
}

/// Whether the command line asked for help, which `parse` has printed.
inline bool printed_help(const caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  return config.cli_helptext_printed;
#else
  return config.helptext_printed();
#endif
}

/// The first argument of the command line that is no option, or empty.
inline std::string first_leftover(const caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  const auto& arguments = config.remainder;
#else
  const auto& arguments = config.remainder();
#endif
  return arguments.empty() ? std::string{} : arguments[0];
}

/// Registers the message types of `IdBlocks`; call before constructing a
/// configuration. Nothing to do on 0.17.
template <class... IdBlocks>
void init_types() {
#if !SYNCNORM_CAF_LEGACY
  caf::core::init_global_meta_objects();
  caf::io::middleman::init_global_meta_objects();
  (caf::init_global_meta_objects<IdBlocks>(), ...);
#endif
}

/// The line of CAF: nodes of different lines do not understand each other.
inline constexpr int caf_line = CAF_MAJOR_VERSION;

/// Makes nodes send each other a sign of life in every `interval`, and take one
/// for lost that has sent nothing for `timeout`. Neither is on by default on
/// 0.17.
inline void set_heartbeats(caf::actor_system_config& config,
                           caf::timespan interval, caf::timespan timeout) {
#if SYNCNORM_CAF_LEGACY
  config.set("middleman.heartbeat-interval", interval);
  config.set("middleman.connection-timeout", timeout);
#else
  config.set("caf.middleman.heartbeat-interval", interval);
  config.set("caf.middleman.connection-timeout", timeout);
#endif
}

/// Has messages from other nodes read by the thread that receives them. By
/// default CAF hands them to its workers: another thread has to wake up.
inline void read_where_received(caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  config.set("middleman.workers", std::size_t{0});
#else
  config.set("caf.middleman.workers", std::size_t{0});
#endif
}

/// The broker that speaks CAF's protocol, for all connections of a system.
inline caf::actor protocol_broker(caf::actor_system& system) {
#if SYNCNORM_CAF_LEGACY
  constexpr auto name = caf::atom("BASP");
#else
  constexpr auto name = "BASP";
#endif
  return system.middleman().named_broker<caf::io::basp_broker>(name);
}

/// The files of CAF's openssl module, in PEM format.
inline void set_tls_files(caf::actor_system_config& config,
                          const std::string& certificate,
                          const std::string& key, const std::string& ca) {
#if SYNCNORM_CAF_LEGACY
  config.openssl_certificate = certificate;
  config.openssl_key = key;
  config.openssl_cafile = ca;
#else
  config.set("caf.openssl.certificate", certificate);
  config.set("caf.openssl.key", key);
  config.set("caf.openssl.cafile", ca);
#endif
}

/// Has the workers of CAF's scheduler sleep until there is work. By default an
/// idle one looks for some every 50 microseconds: four of them took a sixth of
/// a trainer's time, and find work later than one that is woken.
inline void sleep_when_idle(caf::actor_system_config& config) {
#if SYNCNORM_CAF_LEGACY
  config.set("work-stealing.aggressive-poll-attempts", 0);
  config.set("work-stealing.moderate-poll-attempts", 0);
#else
  config.set("caf.work-stealing.aggressive-poll-attempts", 0);
  config.set("caf.work-stealing.moderate-poll-attempts", 0);
#endif
}

/// Has the workers of CAF's scheduler look for work without a pause, that many
/// times, before they slow down. For actors on several cores that calculate for
/// some microseconds between messages: a worker that gets work tells no other
/// of it, which finds it when it looks.
inline void poll_when_idle(caf::actor_system_config& config,
                           std::size_t attempts) {
#if SYNCNORM_CAF_LEGACY
  config.set("work-stealing.aggressive-poll-attempts", attempts);
#else
  config.set("caf.work-stealing.aggressive-poll-attempts", attempts);
#endif
}

// -- logging ------------------------------------------------------------------

/// CAF's number of a level, from `quiet` = 0 over `error`, `warning`, `info` to
/// `debug` = 4.
template <class Level>
constexpr unsigned caf_log_level(Level level) {
  constexpr unsigned levels[] = {CAF_LOG_LEVEL_QUIET, CAF_LOG_LEVEL_ERROR,
                                 CAF_LOG_LEVEL_WARNING, CAF_LOG_LEVEL_INFO,
                                 CAF_LOG_LEVEL_DEBUG};
  return levels[static_cast<std::size_t>(level)];
}

#if SYNCNORM_CAF_LEGACY
inline constexpr auto log_component = caf::atom("syncnorm");
#else
inline constexpr std::string_view log_component = "syncnorm";
#endif

/// Returns whether CAF's logger takes messages of that level from us.
template <class Level>
bool accepts_log(caf::actor_system& system, Level level) {
  return system.logger().accepts(caf_log_level(level), log_component);
}

/// Hands a message to CAF's logger, also where the program that CAF was built
/// for has its macros off.
template <class Level>
void write_log(caf::actor_system& system, Level level, std::string text) {
#if SYNCNORM_CAF_LEGACY
  auto& logger = system.logger();
  logger.log(caf::logger::event{
      caf_log_level(level), __LINE__, log_component, "syncnorm::master",
      "master", "syncnorm", std::move(text), std::this_thread::get_id(),
      logger.thread_local_aid(), caf::make_timestamp()});
#else
  // Also on a thread that is not CAF's: see `send_and_lend`.
  auto* before = caf::logger::current_logger();
  caf::logger::current_logger(&system);
  caf::logger::log(caf_log_level(level), log_component, "{}", text);
  caf::logger::current_logger(before);
#endif
}

// -- metrics ------------------------------------------------------------------

/// What one master counts in the metric registry of CAF 1.x. Does nothing on
/// 0.17, which has none.
class round_instruments {
#if SYNCNORM_CAF_LEGACY
public:
  round_instruments(caf::actor_system&, const std::string&,
                    std::span<const double>) {}

  void completed(caf::timespan) {}

  void failed(const std::string&) {}
#else
public:
  round_instruments(caf::actor_system& system, const std::string& layer,
                    std::span<const double> bounds)
      : registry_{&system.metrics()},
        layer_{layer},
        rounds_{registry_
                    ->counter_family("syncnorm", "rounds", {"layer"},
                                     "Completed rounds", "1", true)
                    ->get_or_add({{"layer", layer_}})},
        waits_{registry_
                   ->histogram_family<double>(
                       "syncnorm", "wait-time", {"layer"},
                       caf::span<const double>{bounds.data(), bounds.size()},
                       "Time from a round's first message to its last",
                       "seconds")
                   ->get_or_add({{"layer", layer_}})} {}

  void completed(caf::timespan waited) {
    rounds_->inc();
    waits_->observe(std::chrono::duration<double>(waited).count());
  }

  void failed(const std::string& cause) {
    registry_
        ->counter_family("syncnorm", "failures", {"layer", "cause"},
                         "Failed rounds and expelled slaves", "1", true)
        ->get_or_add({{"layer", layer_}, {"cause", cause}})
        ->inc();
  }

private:
  caf::telemetry::metric_registry* registry_;
  std::string layer_;
  caf::telemetry::int_counter* rounds_;
  caf::telemetry::dbl_histogram* waits_;
#endif
};

// -- errors -------------------------------------------------------------------

/// Returns whether `x` holds a code of the enum `Code`.
template <class Code>
bool has_category(const caf::error& x) {
  if (x == caf::none)
    return false;
#if SYNCNORM_CAF_LEGACY
  return x.category() == caf::detail::error_factory<Code>::category;
#else
  return x.category() == caf::type_id_v<Code>;
#endif
}

/// What CAF says of an error. Another node can send any category: on 1.x, one
/// that is no type of a code's size would end the process.
inline std::string error_text(const caf::error& x) {
#if !SYNCNORM_CAF_LEGACY
  if (x != caf::none) { // An empty error has no category to ask for.
    const auto* type = caf::detail::global_meta_object_or_null(x.category());
    if (type == nullptr || type->simple_size != 1)
      return "an error of an unknown category";
  }
#endif
  return caf::to_string(x);
}

// -- raw bytes ----------------------------------------------------------------

/// Something that can be written and read as one block of bytes.
/// `load(f, x)` and `save(f, x)` of the type move the bytes by these two.
#if SYNCNORM_CAF_LEGACY

inline bool write_count(caf::serializer& f, std::uint64_t n) {
  auto count = static_cast<std::size_t>(n);
  return f.begin_sequence(count) == caf::none;
}

inline bool write_bytes(caf::serializer& f, std::span<const std::byte> bytes) {
  // The serializer takes a mutable pointer and does not write through it.
  return bytes.empty()
         || f.apply_raw(bytes.size(), const_cast<std::byte*>(bytes.data()))
                == caf::none;
}

inline bool read_count(caf::deserializer& f, std::uint64_t& n) {
  std::size_t count = 0;
  if (f.begin_sequence(count) != caf::none)
    return false;
  n = count;
  return true;
}

inline bool read_bytes(caf::deserializer& f, std::span<std::byte> bytes) {
  return bytes.empty() || f.apply_raw(bytes.size(), bytes.data()) == caf::none;
}

template <class T>
caf::error inspect_raw(caf::serializer& f, T& x, const char*) {
  if (x.save(f))
    return f.end_sequence();
  return caf::sec::invalid_argument;
}

template <class T>
caf::error inspect_raw(caf::deserializer& f, T& x, const char*) {
  if (x.load(f))
    return f.end_sequence();
  return caf::sec::invalid_argument;
}

/// For CAF's printers.
template <class Inspector, class T>
auto inspect_raw(Inspector& f, T& x, const char* type_name) {
  auto size = x.size();
  return f(caf::meta::type_name(type_name), size);
}

#else

template <class Inspector>
bool write_count(Inspector& f, std::uint64_t n) {
  return f.begin_field("size") && f.value(n) && f.end_field();
}

template <class Inspector>
bool write_bytes(Inspector& f, std::span<const std::byte> bytes) {
  return f.value(caf::const_byte_span{bytes.data(), bytes.size()});
}

template <class Inspector>
bool read_count(Inspector& f, std::uint64_t& n) {
  return f.begin_field("size") && f.value(n) && f.end_field();
}

template <class Inspector>
bool read_bytes(Inspector& f, std::span<std::byte> bytes) {
  return f.value(caf::byte_span{bytes.data(), bytes.size()});
}

template <class Inspector, class T>
bool inspect_raw(Inspector& f, T& x, const char* type_name) {
  if (f.has_human_readable_format()) {
    std::uint64_t size = x.size();
    return f.object(x).pretty_name(type_name).fields(f.field("size", size));
  }
  if (!f.begin_object(caf::invalid_type_id, type_name))
    return false;
  bool done = false;
  if constexpr (Inspector::is_loading) {
    done = x.load(f);
    if (!done)
      f.emplace_error(caf::sec::invalid_argument, type_name);
  } else {
    done = x.save(f);
  }
  return done && f.end_object();
}

#endif

// -- messages as bytes --------------------------------------------------------

/// What `x` becomes on its way to another node. On 0.17 what holds messages
/// needs a `system`.
template <class T>
std::vector<std::byte>
serialize(const T& x, [[maybe_unused]] caf::actor_system* system = nullptr) {
#if SYNCNORM_CAF_LEGACY
  std::vector<char> buffer;
  auto* context = system != nullptr ? system->dummy_execution_unit() : nullptr;
  caf::binary_serializer sink{context, buffer};
  std::ignore = sink(const_cast<T&>(x));
#else
  caf::byte_buffer buffer;
  caf::binary_serializer sink{buffer};
  std::ignore = sink.apply(x);
#endif
  auto bytes = std::as_bytes(std::span{buffer});
  return {bytes.begin(), bytes.end()};
}

/// Reads `x` from what `serialize` made. Returns false if that is no T. What
/// holds messages or actors needs a `system`.
template <class T>
bool deserialize(std::span<const std::byte> bytes, T& x,
                 [[maybe_unused]] caf::actor_system* system = nullptr) {
#if SYNCNORM_CAF_LEGACY
  auto* context = system != nullptr ? system->dummy_execution_unit() : nullptr;
  caf::binary_deserializer source{
      context, reinterpret_cast<const char*>(bytes.data()), bytes.size()};
  return source(x) == caf::none;
#else
  auto source =
      system != nullptr
          ? caf::binary_deserializer{*system, bytes.data(), bytes.size()}
          : caf::binary_deserializer{bytes.data(), bytes.size()};
  return source.apply(x);
#endif
}

} // namespace syncnorm::detail

// 0.17 names a category by at most 10 characters, 1.x by the type.
#if SYNCNORM_CAF_LEGACY
#define SYNCNORM_ERROR_CODE_ENUM(type, category)                               \
  CAF_ERROR_CODE_ENUM(type, category)
#else
#define SYNCNORM_ERROR_CODE_ENUM(type, category) CAF_ERROR_CODE_ENUM(type)
#endif
