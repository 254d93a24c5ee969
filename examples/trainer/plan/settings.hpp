#pragma once

#include "trainer/plan/schedule.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>

namespace syncnorm::train {

enum class model_kind : std::uint8_t { mlp = 0, cnn = 1, resnet = 2 };

enum class norm_kind : std::uint8_t {
  /// Batch norm over the batches of all replicas.
  sync = 0,
  /// Each replica normalizes by its own samples alone.
  local = 1,
  /// Normalizes by the running statistics, which do not change.
  frozen = 2,
};

enum class precision_kind : std::uint8_t {
  f32 = 0,
  f64 = 1,
  /// Activations in bfloat16, weights and gradients in float32.
  bf16 = 2,
};

enum class failure_kind : std::uint8_t {
  /// A lost process ends the run, with a checkpoint.
  stop = 0,
  /// The others continue.
  go_on = 1,
};

/// KiB of a gradient that travel as one message, as relays send it: in float64.
inline constexpr std::size_t default_chunk = 512;

/// Elements of a gradient in that many KiB.
constexpr std::size_t elements_of_chunk(std::size_t kib) {
  return kib * (1024 / sizeof(double));
}

/// The options of the program after reading; docs/trainer.md describes them.
struct settings {
  // -- what is trained --------------------------------------------------------
  std::string data;
  model_kind model = model_kind::cnn;
  norm_kind norm = norm_kind::sync;
  precision_kind precision = precision_kind::f32;
  /// Empty: `default_devices`.
  std::string devices;

  // -- how --------------------------------------------------------------------
  /// Samples of one step, over all replicas.
  std::size_t batch = 64;
  std::size_t epochs = 15;
  double rate = 0.05;
  double momentum = 0.9;
  double weight_decay = 0;
  schedule_kind schedule = schedule_kind::cosine;
  std::uint64_t seed = 1;
  /// Training images are moved at random by up to this many pixels each way.
  std::size_t shift = 1;

  // -- what comes out ---------------------------------------------------------
  std::string metrics;
  std::string logdir;
  /// Folder of checkpoints; empty: none are written.
  std::string checkpoint;
  /// Steps from one checkpoint to the next; 0: one after each epoch.
  std::size_t every = 0;
  bool resume = false;
  /// Checkpoint of which to print the accuracy, instead of training.
  std::string eval;

  // -- with whom --------------------------------------------------------------
  /// Where to serve a run of several processes, or where to join one.
  std::string serve;
  std::string join;
  /// How many processes join.
  std::size_t workers = 0;
  /// The numbers that a launcher gave this process, among all and among those
  /// of its machine; -1: there was none. See `launch`.
  std::int64_t rank = -1;
  std::int64_t local_rank = -1;
  /// Up to this many processes are next to the one that serves; more form a
  /// tree.
  std::int64_t fan_in = 16;
  /// Where this process, if it joins, can be reached by others of the tree;
  /// empty: where it reaches the server, at any port.
  std::string listen;
  /// KiB of a gradient, in float64, that travel as one message.
  std::size_t chunk = default_chunk;
  failure_kind on_failure = failure_kind::stop;
  /// Seconds that a replica may keep the others waiting.
  double deadline = 60;
  /// Seconds for all processes to come together.
  double patience = 60;
  /// Serve and join on any address, without TLS.
  bool insecure = false;
  /// Files of TLS, all or none.
  std::string tls_certificate;
  std::string tls_key;
  std::string tls_ca;

  [[nodiscard]] std::chrono::nanoseconds round_deadline() const;

  /// `chunk`, in elements.
  [[nodiscard]] std::size_t chunk_elements() const {
    return elements_of_chunk(chunk);
  }

  [[nodiscard]] bool has_tls() const {
    return !tls_certificate.empty();
  }

  /// @throws failure for a number that is out of range, or options that do not
  ///         go together.
  void validate() const;

private:
  void validate_training() const;
  void validate_processes() const;
  void validate_tls() const;
  void validate_checkpoint() const;
};

[[nodiscard]] std::string to_string(model_kind kind);
[[nodiscard]] std::string to_string(norm_kind kind);
[[nodiscard]] std::string to_string(precision_kind kind);
[[nodiscard]] std::string to_string(schedule_kind kind);
[[nodiscard]] std::string to_string(failure_kind kind);

/// Read what `to_string` returns.
/// @throws failure that names the option, the choices and what was found.
[[nodiscard]] model_kind parse_model(const std::string& text);
[[nodiscard]] norm_kind parse_norm(const std::string& text);
[[nodiscard]] precision_kind parse_precision(const std::string& text);
[[nodiscard]] schedule_kind parse_schedule(const std::string& text);
[[nodiscard]] failure_kind parse_failure(const std::string& text);

} // namespace syncnorm::train
