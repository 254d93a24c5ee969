#include "actors/nn/worker_team.hpp"

#include "syncnorm/future_result.hpp"

#include <thread>
#include <tuple>
#include <utility>

namespace syncnorm::nn::detail {

namespace {

using body_ptr = const std::function<void(std::size_t)>*;

} // namespace

/// One thread and its two pipes: work goes in, exceptions come out. Null is the
/// end.
struct worker_team::worker {
  future_result<body_ptr> work;
  future_result<std::exception_ptr> done;
  std::jthread thread;

  void serve(std::size_t i) {
    for (auto body = work.get(); body && *body != nullptr; body = work.get()) {
      std::exception_ptr thrown;
      try {
        (**body)(i);
      } catch (...) {
        thrown = std::current_exception();
      }
      std::ignore = done.put(thrown);
    }
  }
};

worker_team::worker_team(std::size_t size) {
  try {
    for (std::size_t i = 0; i < size; ++i) {
      auto* next = workers_.emplace_back(std::make_unique<worker>()).get();
      next->thread = std::jthread{[next, i] { next->serve(i); }};
    }
  } catch (...) {
    end_work();
    throw;
  }
}

worker_team::~worker_team() {
  end_work();
}

void worker_team::end_work() noexcept {
  for (auto& x : workers_)
    std::ignore = x->work.put(body_ptr{nullptr});
}

std::size_t worker_team::size() const noexcept {
  return workers_.size();
}

std::vector<std::exception_ptr>
worker_team::run(std::size_t n, const std::function<void(std::size_t)>& body) {
  for (std::size_t i = 0; i < n; ++i)
    std::ignore = workers_[i]->work.put(&body);
  std::vector<std::exception_ptr> thrown;
  for (std::size_t i = 0; i < n; ++i)
    thrown.push_back(*workers_[i]->done.get());
  return thrown;
}

} // namespace syncnorm::nn::detail
