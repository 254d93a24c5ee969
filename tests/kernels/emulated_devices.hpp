#pragma once

// CUDA devices on the host, for tests of code that uses them: memory that is
// all NaN until it is written and after it is given back, streams whose work is
// done by one thread in an order as unfavourable as their events allow, or only
// when the test says so, and devices that fail. Kernels are the CPU's; each
// checks that its arguments are on its device and alive.

#include "syncnorm/device_runtime.hpp"
#include "syncnorm/error.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace syncnorm::testing {

class emulated_devices final : public device_runtime {
public:
  explicit emulated_devices(int count) : count_{count} {}

  ~emulated_devices() override {
    go();
    {
      std::unique_lock lock{mutex_};
      ended_ = true;
      changed_.notify_all();
    }
    thread_.join();
  }

  // -- what a test does -------------------------------------------------------

  /// From here on the devices do nothing until `go`.
  void hold() {
    std::unique_lock lock{mutex_};
    held_ = true;
  }

  void go() {
    std::unique_lock lock{mutex_};
    held_ = false;
    changed_.notify_all();
  }

  /// From here on the device does nothing, and reports it.
  void break_device(int index) {
    std::unique_lock lock{mutex_};
    broken_.insert(index);
    changed_.notify_all();
  }

  /// From here on there is no memory for an event.
  void refuse_events() {
    std::unique_lock lock{mutex_};
    events_refused_ = true;
  }

  /// From here on a device has no memory for pieces of `bytes` bytes or, with
  /// `pinned`, the host has none for devices; the first `granted` still
  /// succeed.
  void refuse_memory(std::size_t bytes, bool pinned = false, int granted = 0) {
    std::unique_lock lock{mutex_};
    memory_refused_ = {bytes, pinned, granted};
  }

  /// From here on this kernel, or "copy", cannot be launched.
  void refuse_launch(const std::string& kernel) {
    std::unique_lock lock{mutex_};
    refused_.insert(kernel);
  }

  /// What was done that only a faulty program does.
  [[nodiscard]] std::vector<std::string> faults() {
    std::unique_lock lock{mutex_};
    return faults_;
  }

  /// How often a thread has waited for a device.
  [[nodiscard]] int waits() {
    std::unique_lock lock{mutex_};
    return waits_;
  }

  /// The largest number of pieces of memory, on devices and on the host for
  /// them, allocated at a time.
  [[nodiscard]] int peak_alive() {
    std::unique_lock lock{mutex_};
    return peak_alive_;
  }

  /// Streams and events that were made and have not ended.
  [[nodiscard]] int handles() {
    std::unique_lock lock{mutex_};
    return handles_;
  }

  /// Calls of the kernel called `kernel` so far.
  [[nodiscard]] int calls(const std::string& kernel) {
    std::unique_lock lock{mutex_};
    return calls_[kernel];
  }

  /// Where the workspaces of `batch_moments` were so far.
  [[nodiscard]] std::vector<const void*> workspaces() {
    std::unique_lock lock{mutex_};
    return workspaces_;
  }

  /// Waits until all that is enqueued is done.
  void drain() {
    std::unique_lock lock{mutex_};
    changed_.wait(lock, [this] {
      return std::ranges::all_of(
          streams_, [](const auto& x) { return x.second.work.empty(); });
    });
  }

  // -- device_runtime ---------------------------------------------------------

  void require(const device& where) override {
    if (where.type != device_type::cuda || where.index >= count_)
      throw error{errc::device_unavailable,
                  "expected one of " + std::to_string(count_)
                      + " emulated devices, got " + to_string(where)};
  }

  void* make_stream(const device&) override {
    std::unique_lock lock{mutex_};
    ++handles_;
    return reinterpret_cast<void*>(std::uintptr_t(++last_stream_));
  }

  void end_stream(const device&, void*) noexcept override {
    std::unique_lock lock{mutex_};
    --handles_;
  }

  void* make_event(const device&) override {
    std::unique_lock lock{mutex_};
    if (events_refused_)
      throw std::bad_alloc{};
    ++handles_;
    return new std::shared_ptr<event>{std::make_shared<event>()};
  }

  void end_event(const device&, void* x) noexcept override {
    std::unique_lock lock{mutex_};
    --handles_;
    delete static_cast<std::shared_ptr<event>*>(x);
  }

  void record(const execution& at, void* x) override {
    auto mine = shared(x);
    enqueue(at, [this, mine] {
      std::unique_lock lock{mutex_};
      mine->passed = true;
    });
  }

  void wait(const execution& at, void* x) override {
    enqueue(
        at, [] {}, shared(x));
  }

  bool has_passed(const device& where, void* x) override {
    std::unique_lock lock{mutex_};
    refuse_if_broken(where);
    return shared(x)->passed;
  }

  void synchronize(const device& where, void* x) override {
    auto mine = shared(x);
    std::unique_lock lock{mutex_};
    ++waits_;
    changed_.wait(lock, [&] { return mine->passed; });
    refuse_if_broken(where);
  }

  void* allocate(const execution& at, std::size_t bytes) override {
    std::unique_lock lock{mutex_};
    refuse_if_full(bytes, false);
    return add_block(at.where, bytes);
  }

  void release(const execution& at, void* memory) noexcept override {
    enqueue(at, [this, memory] {
      std::unique_lock lock{mutex_};
      auto& x = blocks_.at(memory);
      std::memset(memory, 0xff, x.bytes);
      bury(x);
    });
  }

  void* allocate_pinned(const device& where, std::size_t bytes) override {
    std::unique_lock lock{mutex_};
    refuse_if_full(bytes, true);
    auto* memory = add_block({}, bytes);
    blocks_.at(memory).pinned_for = where;
    return memory;
  }

  void release_pinned(const device& where, void* memory) noexcept override {
    std::unique_lock lock{mutex_};
    auto& x = blocks_.at(memory);
    if (x.pinned_for != where)
      faults_.emplace_back("pinned memory given back at another device");
    bury(x);
  }

  void copy(const execution& at, void* to, const device& to_where,
            const void* from, const device& from_where,
            std::size_t bytes) override {
    if (to_where != at.where && from_where != at.where)
      report("a copy between two other devices");
    run("copy", at, [=, this] {
      check("copy", to_where, {to});
      check("copy", from_where, {from});
      if (bytes > 0)
        std::memcpy(to, from, bytes);
    });
  }

  // -- kernels ----------------------------------------------------------------

  std::size_t batch_moments_workspace(const tensor_layout& x) override {
    return std::max<std::size_t>(syncnorm::batch_moments_workspace(on_host(x)),
                                 256);
  }

  void batch_moments(const execution& at, const const_tensor_view& x,
                     moments_view& out, const workspace& scratch) override {
    out.count = x.shape().per_channel();
    {
      std::unique_lock lock{mutex_};
      workspaces_.push_back(scratch.data);
    }
    run("batch_moments", at, [=, this]() mutable {
      check("batch_moments", at.where,
            {x.data(), out.mean, out.m2, scratch.data});
      out.where = {};
      syncnorm::batch_moments({}, on_host(x), out, scratch);
    });
  }

  void merge_moments(const execution& at,
                     std::span<const const_moments_view> parts,
                     moments_view& out) override {
    std::vector<const_moments_view> all(parts.begin(), parts.end());
    out.count = 0;
    for (const auto& part : all)
      out.count += part.count;
    run("merge_moments", at, [=, this]() mutable {
      for (auto& part : all) {
        check("merge_moments", at.where, {part.mean, part.m2});
        part.where = {};
      }
      check("merge_moments", at.where, {out.mean, out.m2});
      out.where = {};
      syncnorm::merge_moments({}, all, out);
    });
  }

  void finalize_moments(const execution& at, const const_moments_view& total,
                        const finalize_options& options, void* mean,
                        void* inv_std, const running_view& running) override {
    run("finalize_moments", at, [=, this] {
      check("finalize_moments", at.where,
            {total.mean, total.m2, mean, inv_std, running.mean, running.var});
      auto here = total;
      here.where = {};
      syncnorm::finalize_moments({}, here, options, mean, inv_std, running);
    });
  }

  void normalize(const execution& at, const const_tensor_view& x,
                 const channel_parameters& parameters,
                 const tensor_view& y) override {
    run("normalize", at, [=, this] {
      check("normalize", at.where,
            {x.data(), y.const_tensor_view::data(), parameters.mean,
             parameters.inv_std, parameters.weight, parameters.bias});
      syncnorm::normalize({}, on_host(x), parameters, on_host(y));
    });
  }

  std::size_t backward_reduce_workspace(const tensor_layout& x) override {
    return std::max<std::size_t>(
        syncnorm::backward_reduce_workspace(on_host(x)), 256);
  }

  void backward_reduce(const execution& at, const const_tensor_view& dy,
                       const const_tensor_view& x,
                       const channel_parameters& parameters,
                       const backward_sums& out,
                       const workspace& scratch) override {
    run("backward_reduce", at, [=, this] {
      check("backward_reduce", at.where,
            {dy.data(), x.data(), parameters.mean, parameters.inv_std,
             out.sum_dy, out.sum_dy_xmu, out.weight_grad, out.bias_grad,
             scratch.data});
      syncnorm::backward_reduce({}, on_host(dy), on_host(x), parameters,
                                nullptr, out, scratch);
    });
  }

  void backward_input(const execution& at, const const_tensor_view& dy,
                      const const_tensor_view& x,
                      const channel_parameters& parameters,
                      const total_sums& sums, const tensor_view& dx) override {
    run("backward_input", at, [=, this] {
      check("backward_input", at.where,
            {dy.data(), x.data(), dx.const_tensor_view::data(), parameters.mean,
             parameters.inv_std, parameters.weight, sums.sum_dy,
             sums.sum_dy_xmu});
      syncnorm::backward_input({}, on_host(dy), on_host(x), parameters, sums,
                               nullptr, on_host(dx));
    });
  }

  void add_arrays(const execution& at, std::span<const void* const> parts,
                  std::int64_t elements, dtype type, void* out) override {
    std::vector<const void*> all(parts.begin(), parts.end());
    run("add_arrays", at, [=, this] {
      for (const auto* part : all)
        check("add_arrays", at.where, {part});
      check("add_arrays", at.where, {out});
      syncnorm::add_arrays({}, all, elements, type, out);
    });
  }

  void round_array(const execution& at, const double* from,
                   std::int64_t elements, float* out) override {
    run("round_array", at, [=, this] {
      check("round_array", at.where, {from, out});
      syncnorm::round_array({}, from, elements, out);
    });
  }

  void clear_clamped(const execution& at, const void* inv_std, double eps,
                     std::int64_t channels, dtype type,
                     void* sum_dy_xmu) override {
    run("clear_clamped", at, [=, this] {
      check("clear_clamped", at.where, {inv_std, sum_dy_xmu});
      syncnorm::clear_clamped({}, inv_std, eps, channels, type, sum_dy_xmu);
    });
  }

private:
  struct event {
    bool passed = false;
  };

  using event_ptr = std::shared_ptr<event>;

  struct step {
    std::function<void()> run;
    event_ptr behind;
  };

  struct stream {
    int device = 0;
    std::deque<step> work;
  };

  struct block {
    std::size_t bytes = 0;
    device where;
    bool alive = true;
    std::unique_ptr<std::byte[]> memory;
    device pinned_for = {};
  };

  static event_ptr shared(void* x) {
    return *static_cast<event_ptr*>(x);
  }

  static tensor_layout on_host(tensor_layout x) {
    x.where = {};
    return x;
  }
  static const_tensor_view on_host(const const_tensor_view& x) {
    return {x.data(), on_host(x.layout())};
  }
  static tensor_view on_host(tensor_view x) {
    return {x.data(), on_host(x.layout())};
  }

  void* add_block(const device& where, std::size_t bytes) {
    block x{bytes, where, true, std::make_unique<std::byte[]>(bytes + 256)};
    void* start = x.memory.get();
    auto space = bytes + 256;
    std::align(256, bytes, start, space);
    std::memset(start, 0xff, bytes);
    blocks_.emplace(start, std::move(x));
    peak_alive_ = std::max(peak_alive_, ++alive_);
    return start;
  }

  void refuse_if_full(std::size_t bytes, bool pinned) {
    auto& [refused, of_host, granted] = memory_refused_;
    if (bytes == refused && pinned == of_host && --granted < 0)
      throw error{errc::device_failure, "emulated: out of memory"};
  }

  void bury(block& x) {
    x.alive = false;
    --alive_;
  }

  void refuse_if_broken(const device& where) const {
    if (broken_.count(where.index) != 0)
      throw error{errc::device_failure, "emulated: " + to_string(where)
                                            + " has failed: unspecified launch "
                                              "failure"};
  }

  void report(std::string fault) {
    std::unique_lock lock{mutex_};
    faults_.push_back(std::move(fault));
  }

  /// Checks that each of `pointers`, if not null, is in memory of `where`.
  void check(const std::string& call, const device& where,
             std::initializer_list<const void*> pointers) {
    std::unique_lock lock{mutex_};
    for (const auto* p : pointers) {
      if (p == nullptr)
        continue;
      auto i = blocks_.upper_bound(const_cast<void*>(p));
      auto inside = i != blocks_.begin();
      if (inside) {
        --i;
        const auto* first = static_cast<const std::byte*>(i->first);
        inside = static_cast<const std::byte*>(p) < first + i->second.bytes;
      }
      if (!inside)
        faults_.push_back(call + ": memory of no device");
      else if (!same_memory(i->second.where, where))
        faults_.push_back(call + " on " + to_string(where) + ": memory of "
                          + to_string(i->second.where));
      else if (!i->second.alive)
        faults_.push_back(call + ": memory that was given back");
    }
  }

  void run(const std::string& kernel, const execution& at,
           std::function<void()> f) {
    {
      std::unique_lock lock{mutex_};
      if (refused_.count(kernel) != 0)
        throw error{errc::device_failure,
                    "emulated: " + kernel + " cannot be launched"};
      ++calls_[kernel];
    }
    enqueue(at, [this, f = std::move(f), index = at.where.index] {
      if (!is_broken(index))
        f();
    });
  }

  bool is_broken(int index) {
    std::unique_lock lock{mutex_};
    return broken_.count(index) != 0;
  }

  void enqueue(const execution& at, std::function<void()> f,
               event_ptr behind = nullptr) {
    std::unique_lock lock{mutex_};
    auto& to = streams_[{at.stream, at.where.index}];
    to.device = at.where.index;
    to.work.push_back({std::move(f), std::move(behind)});
    changed_.notify_all();
  }

  /// The newest stream comes first: what others must wait for comes late.
  stream* next_stream() {
    if (held_)
      return nullptr;
    for (auto i = streams_.rbegin(); i != streams_.rend(); ++i) {
      auto& work = i->second.work;
      if (!work.empty() && (!work[0].behind || work[0].behind->passed))
        return &i->second;
    }
    return nullptr;
  }

  void work() {
    std::unique_lock lock{mutex_};
    for (;;) {
      auto* from = next_stream();
      if (from == nullptr) {
        if (ended_)
          return;
        changed_.wait(lock);
        continue;
      }
      auto now = std::move(from->work.front().run);
      lock.unlock();
      now();
      now = nullptr;
      lock.lock();
      from->work.pop_front();
      changed_.notify_all();
    }
  }

  const int count_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool held_ = false;
  bool events_refused_ = false;
  struct {
    std::size_t bytes = 0;
    bool pinned = false;
    int granted = 0;
  } memory_refused_;
  bool ended_ = false;
  std::set<int> broken_;
  std::uint64_t last_stream_ = 0;
  std::map<std::pair<void*, int>, stream> streams_;
  std::map<void*, block> blocks_;
  std::vector<std::string> faults_;
  std::vector<const void*> workspaces_;
  std::map<std::string, int> calls_;
  std::set<std::string> refused_;
  int handles_ = 0;
  int waits_ = 0;
  int alive_ = 0;
  int peak_alive_ = 0;
  std::thread thread_{[this] { work(); }};
};

} // namespace syncnorm::testing
