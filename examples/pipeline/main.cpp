// pipeline: standardizes a stream of records by a pipeline of actors and gives
// each record a score. It reads records, scatters each batch among slave actors
// that share the statistics of the whole batch, and writes "record,score"
// lines:
//
//   pipeline --input=digits.idx --devices=cpu:0,cpu:1 --output=scores.csv
//   generate | pipeline --input=- --mode=online --state=seen.txt
//
// It prints what went in and out, and exits with 1 if the stream ended early or
// if it cannot print this.
// Ctrl-C ends the stream after what was read, and saves the state.

#include "config.hpp"
#include "state_file.hpp"
#include "stream.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <utility>

namespace {

using namespace pipeline;

stop_signal* stopped_by_ctrl_c = nullptr;

/// Also called in a signal handler.
void handle_stop(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

extern "C" void stop_stream(int) {
  handle_stop(SIG_DFL);
  stopped_by_ctrl_c->raise(stop_signal::reason::asked);
}

/// While this object lives, the first Ctrl-C or SIGTERM ends the stream
/// normally, the second one the program.
class ctrl_c {
public:
  ctrl_c() {
    stopped_by_ctrl_c = stop.get();
    handle_stop(stop_stream);
  }

  ctrl_c(const ctrl_c&) = delete;
  ctrl_c& operator=(const ctrl_c&) = delete;

  ~ctrl_c() {
    handle_stop(SIG_DFL);
  }

  std::shared_ptr<stop_signal> stop = std::make_shared<stop_signal>();
};

score_output open_output(const std::string& file) {
  if (file.empty())
    return {};
  auto result = std::make_shared<std::ofstream>(file);
  if (!*result)
    throw std::runtime_error{file
                             + ": cannot be written: " + std::strerror(errno)};
  return {file, std::move(result)};
}

void print(const totals& x, std::ostream& out) {
  out << "records: " << x.records.delivered << " read, " << x.records_out
      << " scored, " << x.records_lost << " lost, "
      << x.records.skipped_malformed << " malformed and "
      << x.records.skipped_not_finite << " not finite skipped, "
      << x.records.passed_not_finite << " not finite passed on\n"
      << "batches: " << x.batches << ", at most " << x.peak_in_flight
      << " in flight; slaves started anew: " << x.recoveries << '\n';
  if (!x.records.first_skipped.empty())
    out << "first skipped: " << x.records.first_skipped << '\n';
}

bool is_closed(int descriptor) {
  return ::fcntl(descriptor, F_GETFD) < 0;
}

/// Opens the standard descriptors that are closed: later files would take their
/// numbers. A closed input then is empty; writing to a closed output fails.
void open_standard_streams() {
  // `open` takes the lowest free number.
  if (is_closed(STDIN_FILENO))
    ::open("/dev/null", O_RDONLY);
  for (int output : {STDOUT_FILENO, STDERR_FILENO})
    if (is_closed(output))
      ::open("/dev/full", O_WRONLY);
}

/// Returns `code`, or 1 if what was printed could not be written.
int after_printing(int code, bool closed) {
  errno = 0;
  auto flushed = std::fflush(stdout) == 0;
  if (flushed && std::cout && std::ferror(stdout) == 0)
    return code;
  std::cerr << "pipeline: standard output: cannot be written";
  if (closed)
    std::cerr << ": it is closed";
  else if (!flushed)
    std::cerr << ": " << std::strerror(errno);
  std::cerr << '\n';
  return 1;
}

int run(int argc, char** argv) {
  syncnorm::compat::init_types<caf::id_block::syncnorm,
                               caf::id_block::pipeline>();
  config options;
  if (!options.read(argc, argv))
    return 0;
  ctrl_c interrupted;
  std::shared_ptr<record_reader> reader =
      open_records(options.input, options.repeat, options.header,
                   options.policies(), interrupted.stop);
  if (reader->features() == 0) { // stopped before the first record
    totals none;
    none.records = reader->counts();
    print(none, std::cout);
    return 0;
  }
  if (!options.state.empty() && options.mode() != run_mode::evaluation)
    expect_writable(options.state);
  caf::actor_system system{options};
  // begin: modes
  auto mode = options.mode();
  auto evaluation = mode == run_mode::evaluation;
  syncnorm::batch_norm_options norm;
  norm.name = "stream";
  norm.channels = reader->features();
  norm.affine = false;
  norm.online =
      evaluation ? holds_online_state(options.state) : mode == run_mode::online;
  auto owned =
      make_stages(system, norm, options.devices(), !evaluation, options.state);
  auto result = run_stream(system, reader, options.source, std::move(owned),
                           evaluation ? std::string{} : options.state,
                           open_output(options.output));
  // end: modes
  print(result, std::cout);
  if (result.failure.empty())
    return 0;
  std::cerr << "pipeline: " << result.failure << '\n';
  return 1;
}

} // namespace

int main(int argc, char** argv) {
  auto closed = is_closed(STDOUT_FILENO);
  open_standard_streams();
  // Leaves it to `after_printing` to find what standard output cannot take.
  std::cerr.tie(nullptr);
  // The reader of the scores may leave, and a file may grow past its limit:
  // then writing fails, as on a full disk.
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);
  try {
    return after_printing(run(argc, argv), closed);
  } catch (const std::exception& x) {
    std::cerr << "pipeline: " << x.what() << '\n';
    return 1;
  }
}
