#pragma once

#include "stop_signal.hpp"

#include <array>
#include <istream>
#include <memory>
#include <streambuf>
#include <string>

namespace pipeline {

/// Input from a file, a pipe or a terminal. Raising `stop` ends it, even while
/// a reader waits for more, or for somebody to write to a named pipe.
class stoppable_input : public std::istream {
public:
  /// @param path of a file, or `-` for standard input.
  /// @throws std::runtime_error if it cannot be opened.
  stoppable_input(const std::string& path,
                  std::shared_ptr<const stop_signal> stop);

private:
  class buffer : public std::streambuf {
  public:
    buffer(int descriptor, std::string name,
           std::shared_ptr<const stop_signal> stop);
    ~buffer() override;

  protected:
    /// @throws std::runtime_error if it cannot be read; a stream swallows the
    ///         error unless it is set to throw.
    int_type underflow() override;

  private:
    int descriptor_;
    std::string name_;
    std::shared_ptr<const stop_signal> stop_;
    std::array<char, 65536> bytes_;
  };

  buffer buffer_;
};

} // namespace pipeline
