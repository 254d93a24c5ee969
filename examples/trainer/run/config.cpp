#include "trainer/run/config.hpp"

#include "trainer/failure.hpp"
#include "trainer/plan/endpoint.hpp"
#include "trainer/plan/launch.hpp"
#include "trainer/run/messages.hpp"

#include "syncnorm/compat.hpp"
#include "syncnorm/message_types.hpp"
#include "syncnorm/network.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <tuple>
#include <utility>

namespace syncnorm::train {

namespace {

/// Refuses library defaults that the trainer's own options replace: they would
/// have no effect.
void refuse_overruled(const caf::actor_system_config& config) {
  constexpr std::array overruled{
      std::pair{"syncnorm.deadline", "--deadline"},
      std::pair{"syncnorm.failure-policy", "--on-failure"},
      std::pair{"syncnorm.fan-in", "--fan-in"},
  };
  for (const auto& [name, option] : overruled)
    if (caf::get_if(&caf::content(config), std::string{name}) != nullptr)
      throw failure{fmt::format("{}: not an option of the trainer, expected {}",
                                name, option)};
}

} // namespace

std::int64_t& config::count(std::size_t& out, const char* name,
                            std::int64_t least) {
  return counts_
      .emplace_back(
          count_option{name, &out, least, static_cast<std::int64_t>(out)})
      .value;
}

void config::read_counts() {
  for (const auto& x : counts_) {
    if (x.value < x.least)
      throw failure{fmt::format("--{}: expected {} or more, found {}", x.name,
                                x.least, x.value)};
    *x.out = static_cast<std::size_t>(x.value);
  }
}

config::config() {
  compat::add_types<caf::id_block::syncnorm, caf::id_block::syncnorm_train>(
      *this);
  compat::sleep_when_idle(*this);
  // With other heartbeats once `parse` knows the deadline.
  use_network(*this);
  options_.data = SYNCNORM_TRAIN_DATA;
  compat::option_group all{custom_options_, "global"};
  add_model_options(all);
  add_training_options(all);
  add_file_options(all);
  add_process_options(all);
  add_security_options(all);
}

void config::add_model_options(compat::option_group& all) {
  all.add(options_.data, "data", "folder of the data set (IDX or CIFAR-10)")
      .add(options_.devices, "devices",
           "one replica each, e.g. cpu*4 or cuda:0,cuda:1")
      .add(model_, "model", "mlp, cnn or resnet")
      .add(norm_, "norm", "batch norm: sync, local or frozen")
      .add(precision_, "precision", "f32, f64 or bf16");
}

void config::add_training_options(compat::option_group& all) {
  all.add(count(options_.batch, "batch", 1), "batch",
          "samples of a step, over all replicas")
      .add(count(options_.epochs, "epochs", 1), "epochs",
           "how often to show each sample")
      .add(options_.rate, "lr", "learning rate")
      .add(options_.momentum, "momentum", "of gradient descent")
      .add(options_.weight_decay, "weight-decay", "of gradient descent")
      .add(schedule_, "schedule",
           "of the learning rate: constant, cosine, step")
      .add(count(options_.seed, "seed", 0), "seed",
           "of the first weights and the order")
      .add(count(options_.shift, "shift", 0), "shift",
           "moves training images by up to N pixels");
}

void config::add_file_options(compat::option_group& all) {
  all.add(options_.metrics, "metrics", "CSV file, one row a step and an epoch")
      .add(options_.logdir, "logdir", "folder for TensorBoard's event files")
      .add(options_.checkpoint, "checkpoint", "folder of the checkpoint")
      .add(count(options_.every, "every", 0), "every",
           "steps between checkpoints, 0: each epoch")
      .add(options_.resume, "resume", "go on from the checkpoint")
      .add(options_.eval, "eval", "print the accuracy of this checkpoint");
}

void config::add_process_options(compat::option_group& all) {
  all.add(options_.serve, "serve",
          "HOST:PORT at which other processes join this one")
      .add(count(options_.workers, "workers", 0), "workers",
           "number of processes that join")
      .add(options_.join, "join", "HOST:PORT of the process to join")
      .add(options_.fan_in, "fan-in",
           "of the process that serves: with more processes they form a tree")
      .add(count(options_.chunk, "chunk", 1), "chunk",
           "KiB of a gradient that travel as one message")
      .add(options_.listen, "listen",
           "HOST:PORT for those below this process in the tree")
      .add(on_failure_, "on-failure",
           "when a process is lost: stop, or continue without it")
      .add(options_.deadline, "deadline",
           "seconds that a replica may keep the others waiting")
      .add(options_.patience, "patience",
           "seconds for the processes to come together");
}

void config::add_security_options(compat::option_group& all) {
  all.add(options_.tls_certificate, "tls-certificate",
          "PEM file: who this process is to the others")
      .add(options_.tls_key, "tls-key", "PEM file: the certificate's key")
      .add(options_.tls_ca, "tls-ca",
           "PEM file: the CA of the others' certificates")
      .add(options_.insecure, "insecure",
           "other addresses than loopback ones, without TLS");
}

std::optional<settings> config::read(int argc, char** argv) {
  if (auto problem =
          compat::read_command_line(*this, custom_options_, argc, argv);
      !problem.empty())
    throw failure{problem};
  if (compat::printed_help(*this))
    return std::nullopt;
  refuse_overruled(*this);
  std::ignore = read_defaults(*this);
  read_counts();
  options_.model = parse_model(model_);
  options_.norm = parse_norm(norm_);
  options_.precision = parse_precision(precision_);
  options_.schedule = parse_schedule(schedule_);
  options_.on_failure = parse_failure(on_failure_);
  if (options_.serve.empty() && options_.join.empty() && options_.eval.empty())
    if (auto launched =
            find_launch([](const char* x) { return std::getenv(x); })) {
      apply(*launched, options_);
      host_variable_ = launched->host_variable;
    }
  options_.validate();
  // A process that no longer answers is lost, by name, before a round that
  // waits for it is over, which could name nobody at fault.
  auto deadline = options_.round_deadline();
  compat::set_heartbeats(*this, deadline / 8, deadline * 3 / 4);
  protect();
  return options_;
}

void config::check_address(const std::string& option,
                           const std::string& text) const {
  if (text.empty())
    return;
  auto where = parse_endpoint(option, text);
  auto launched = host_variable_ != nullptr && option != "listen";
  if (!options_.has_tls() && !options_.insecure && !is_loopback(where.host))
    throw failure{fmt::format(
        "{}: expected a loopback address, such as 127.0.0.1, "
        "--tls-certificate, --tls-key and --tls-ca, or --insecure, found {}",
        launched ? host_variable_ : "--" + option, where.host)};
}

void config::protect() {
  check_address("serve", options_.serve);
  check_address("join", options_.join);
  check_address("listen", options_.listen);
  if (!options_.has_tls() || (options_.serve.empty() && options_.join.empty()))
    return;
  try {
    use_tls(*this,
            {options_.tls_certificate, options_.tls_key, options_.tls_ca});
  } catch (const error& x) {
    throw failure{x.what()};
  }
}

} // namespace syncnorm::train
