#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

namespace syncnorm::train {

/// A program that runs beside the test, which can read its output.
class child_process {
public:
  explicit child_process(std::vector<std::string> command) {
    int ends[2] = {};
    if (pipe(ends) != 0)
      throw std::runtime_error{"pipe failed"};
    pid_ = fork();
    if (pid_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      dup2(ends[1], STDERR_FILENO);
      close(ends[0]);
      close(ends[1]);
      std::vector<char*> arguments;
      for (auto& x : command)
        arguments.push_back(x.data());
      arguments.push_back(nullptr);
      execv(arguments[0], arguments.data());
      _exit(127);
    }
    close(ends[1]);
    out_ = fdopen(ends[0], "r");
  }

  child_process(const child_process&) = delete;
  child_process& operator=(const child_process&) = delete;

  ~child_process() {
    if (pid_ > 0)
      kill(SIGKILL);
    std::fclose(out_);
  }

  /// Reads on to a line that begins with `start`, or to the end of the output.
  bool wait_for(const std::string& start) {
    for (std::string line; read_line(line); output_ += line)
      if (line.starts_with(start))
        return true;
    return false;
  }

  /// Reads on until a line begins with `start`; returns it, or the last one.
  std::string line_that_begins(const std::string& start) {
    std::string line;
    while (read_line(line) && !line.starts_with(start))
      output_ += line;
    return line;
  }

  /// Reads the rest of the output and waits for the end.
  /// @returns the exit status, or 128 plus the signal that ended it.
  int finish() {
    for (std::string line; read_line(line);)
      output_ += line;
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

  /// Whether it has ended; `finish` returns how.
  [[nodiscard]] bool has_ended() const {
    siginfo_t found{};
    waitid(P_PID, static_cast<id_t>(pid_), &found, WEXITED | WNOHANG | WNOWAIT);
    return found.si_pid != 0;
  }

  [[nodiscard]] int id() const {
    return pid_;
  }

  void signal(int number) const {
    ::kill(pid_, number);
  }

  int kill(int number) {
    signal(number);
    return finish();
  }

  /// What was read, except for the lines that were waited for.
  [[nodiscard]] const std::string& output() const {
    return output_;
  }

private:
  bool read_line(std::string& line) {
    line.clear();
    for (int c = 0; (c = std::fgetc(out_)) != EOF;) {
      line += static_cast<char>(c);
      if (c == '\n')
        break;
    }
    return !line.empty();
  }

  pid_t pid_ = -1;
  std::FILE* out_ = nullptr;
  std::string output_;
};

} // namespace syncnorm::train
