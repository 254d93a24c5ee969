#pragma once

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace syncnorm::nn::detail {

/// Threads that wait for work: one for each copy of a model, so that a copy
/// may block in a layer until the others have come there. They stay, because
/// libtorch keeps a pool of threads for each of its callers.
class worker_team {
public:
  /// @param size number of threads, 1 or more.
  /// @throws std::system_error if one of them cannot be started.
  explicit worker_team(std::size_t size);
  worker_team(const worker_team&) = delete;
  worker_team& operator=(const worker_team&) = delete;
  ~worker_team();

  [[nodiscard]] std::size_t size() const noexcept;

  /// Calls `body(i)` on thread i for each i in [0, n), all at the same time,
  /// and returns after the last one has, with what each threw, or null.
  /// @param n `size()` or less.
  std::vector<std::exception_ptr>
  run(std::size_t n, const std::function<void(std::size_t)>& body);

private:
  /// Lets every thread return when it has done its work.
  void end_work() noexcept;

  struct worker;
  std::vector<std::unique_ptr<worker>> workers_;
};

} // namespace syncnorm::nn::detail
