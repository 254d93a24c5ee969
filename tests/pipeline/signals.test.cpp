// The program and the signals by which somebody ends it.

#include "tests/pipeline/support.hpp"
#include "tests/trainer/child_process.hpp"

#include <doctest/doctest.h>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

using namespace pipeline::test;

namespace {

using syncnorm::train::child_process;

/// A named pipe; whoever opens one end waits for the other.
struct named_pipe : scratch_file {
  explicit named_pipe(const std::string& what) : scratch_file{what} {
    REQUIRE(::mkfifo(name.c_str(), 0600) == 0);
  }
};

/// An open file, closed at the end.
struct open_file {
  open_file(const std::string& name, int flags)
      : descriptor{::open(name.c_str(), flags)} {
    REQUIRE(descriptor >= 0);
  }
  open_file(const open_file&) = delete;
  open_file& operator=(const open_file&) = delete;
  ~open_file() {
    ::close(descriptor);
  }

  void write(const std::string& text) const {
    REQUIRE(::write(descriptor, text.data(), text.size())
            == static_cast<ssize_t>(text.size()));
  }

  /// Waits until so many lines have come.
  void read_lines(int count) const {
    for (char c = 0; count > 0;) {
      REQUIRE(::read(descriptor, &c, 1) == 1);
      count -= c == '\n' ? 1 : 0;
    }
  }

  int descriptor;
};

/// Whether that process has a handler of its own for a signal.
bool handles(int process, int signal) {
  std::ifstream status{"/proc/" + std::to_string(process) + "/status"};
  std::string word;
  while (status >> word && word != "SigCgt:")
    ;
  std::uint64_t caught = 0;
  status >> std::hex >> caught;
  return (caught >> (signal - 1) & 1) != 0;
}

} // namespace

TEST_CASE(
    "Ctrl-C and SIGTERM end the stream behind what was read, and save the "
    "state") {
  for (int signal : {SIGINT, SIGTERM}) {
    CAPTURE(signal);
    named_pipe records{"records"}, scores{"scores"};
    scratch_file state{"state"};
    child_process program{{SYNCNORM_PIPELINE, "--batch=1",
                           "--input=" + records.name, "--output=" + scores.name,
                           "--state=" + state.name}};
    open_file to{records.name, O_WRONLY};
    // The third line is not whole yet.
    to.write("1,2\n3,4\n5,");
    open_file from{scores.name, O_RDONLY};
    from.read_lines(2);
    program.signal(signal);
    CHECK(program.finish() == 0);
    CHECK(program.output().find("2 read, 2 scored, 0 lost")
          != std::string::npos);
    CHECK(content(state.name).find("num_elements_tracked 1 2\n")
          != std::string::npos);
  }
}

TEST_CASE(
    "the second Ctrl-C ends the program, whatever it waits for, and saves "
    "nothing") {
  named_pipe scores{"scores"};
  scratch_file state{"state"};
  child_process program{{SYNCNORM_PIPELINE, "--repeat=1000",
                         "--input=" + digits, "--output=" + scores.name,
                         "--state=" + state.name}};
  // From here on nobody reads the scores.
  open_file from{scores.name, O_RDONLY};
  from.read_lines(1);
  program.signal(SIGINT);
  while (handles(program.id(), SIGINT))
    std::this_thread::yield();
  program.signal(SIGINT);
  CHECK(program.finish() == 128 + SIGINT);
  CHECK_FALSE(std::filesystem::exists(state.name));
}
