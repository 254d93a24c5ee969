#include "contestants.hpp"

#include "bench/collective/message_types.hpp"
#include "bench/support.hpp"

#include "syncnorm/batch_norm.hpp"
#include "syncnorm/batch_norm_stage.hpp"
#include "syncnorm/caf_error.hpp"
#include "syncnorm/moments.hpp"
#include "syncnorm/tensor_pool.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <iterator>
#include <random>
#include <stdexcept>
#include <thread>
#include <utility>

namespace syncnorm::bench {

namespace {

void append(std::vector<float>& to, const const_tensor_view& x) {
  const auto* first = static_cast<const float*>(x.data());
  to.insert(to.end(), first, first + x.size());
}

// -- without actors -----------------------------------------------------------

/// What all contestants but the slaves do with a batch: online standardization
/// by the kernels.
class standardizer {
public:
  /// @param layout of the batches.
  explicit standardizer(const tensor_layout& layout)
      : channels_{layout.shape.channels},
        size_{static_cast<std::size_t>(channels_)},
        scratch_(batch_moments_workspace(layout)),
        seen_(2 * size_),
        batch_(2 * size_),
        values_(2 * size_),
        mean_(size_),
        inv_std_(size_) {}

  void forget() {
    count_ = 0;
    std::ranges::fill(seen_, 0);
  }

  void run(const const_tensor_view& x, const tensor_view& y) {
    auto total = view_of(count_, seen_);
    auto part = view_of(0, batch_);
    batch_moments({}, x, part, {scratch_.data(), scratch_.size()});
    std::array<const_moments_view, 2> parts{total, part};
    merge_moments({}, parts, total);
    count_ = total.count;
    values_ = seen_;
    finalize_moments({}, total, {}, values_.data(), values_.data() + size_, {});
    std::copy_n(values_.begin(), size_, mean_.begin());
    std::copy_n(values_.begin() + channels_, size_, inv_std_.begin());
    normalize({}, x, {mean_.data(), inv_std_.data()}, y);
  }

private:
  [[nodiscard]] moments_view view_of(std::int64_t n,
                                     std::vector<double>& x) const {
    return {n, x.data(), x.data() + size_, channels_, dtype::float64, {}};
  }

  std::int64_t channels_;
  std::size_t size_;
  std::vector<std::byte> scratch_;
  std::int64_t count_ = 0;
  std::vector<double> seen_, batch_, values_;
  std::vector<float> mean_, inv_std_;
};

class plain_loop : public contestant {
public:
  /// @param kept  how many results are kept at a time.
  plain_loop(const batches& xs, std::size_t kept)
      : xs_{xs},
        kernels_{xs[0].view().layout()} {
    for (std::size_t i = 0; i < kept; ++i)
      ys_.emplace_back(xs[0].view().layout());
  }

  void run(std::int64_t count) override {
    kernels_.forget();
    count_ = static_cast<std::size_t>(count);
    for (std::size_t k = 0; k < count_; ++k)
      kernels_.run(xs_[k % xs_.size()].view(), ys_[k % ys_.size()].view());
  }

  [[nodiscard]] std::vector<float> last() const override {
    std::vector<float> y;
    append(y, ys_[(count_ - 1) % ys_.size()].view());
    return y;
  }

private:
  const batches& xs_;
  std::vector<tensor_memory> ys_;
  std::size_t count_ = 0;
  standardizer kernels_;
};

/// Each loop's memory is allocated by its thread: two loops that shared a cache
/// line would wait for each other.
class plain_loops : public contestant {
public:
  plain_loops(std::size_t threads, std::int64_t records, std::int64_t width,
              std::size_t kept)
      : loops_(threads) {
    std::barrier all{static_cast<std::ptrdiff_t>(threads)};
    std::vector<std::jthread> makers;
    for (auto& loop : loops_)
      makers.emplace_back([&] {
        // Wait until all threads exist, so that each allocates apart from the
        // others.
        all.arrive_and_wait();
        loop = std::make_unique<loop_of_thread>(make_batches(records, width),
                                                kept);
        all.arrive_and_wait();
      });
  }

  void run(std::int64_t count) override {
    std::vector<std::jthread> threads;
    for (auto& x : loops_)
      threads.emplace_back([&x, count] { x->loop.run(count); });
  }

  [[nodiscard]] std::vector<float> last() const override {
    std::vector<float> y;
    for (const auto& x : loops_)
      std::ranges::copy(x->loop.last(), std::back_inserter(y));
    return y;
  }

private:
  struct loop_of_thread {
    loop_of_thread(batches own, std::size_t kept)
        : xs{std::move(own)},
          loop{xs, kept} {}

    batches xs;
    plain_loop loop;
  };

  std::vector<std::unique_ptr<loop_of_thread>> loops_;
};

// -- actors -------------------------------------------------------------------

/// Answers a tensor with the same tensor: the least that CAF needs.
class plain_actor : public caf::event_based_actor {
public:
  using caf::event_based_actor::event_based_actor;

  caf::behavior make_behavior() override {
    return {[](forward_atom, const shared_tensor& x)
                -> caf::result<shared_tensor, std::uint64_t> {
              return {x, std::uint64_t{0}};
            },
            [](forward_atom, const shared_tensors& xs)
                -> caf::result<shared_tensors, std::uint64_t> {
              return {xs, std::uint64_t{0}};
            }};
  }
};

/// Calls the kernels as the plain loop does, but only for its own part.
class kernel_actor : public caf::event_based_actor {
public:
  kernel_actor(caf::actor_config& config, const tensor_layout& layout)
      : caf::event_based_actor{config},
        kernels_{layout} {}

  caf::behavior make_behavior() override {
    return {[this](forward_atom, const shared_tensor& x)
                -> caf::result<shared_tensor, std::uint64_t> {
              return {normalized(x), std::uint64_t{0}};
            },
            [this](forward_atom, const shared_tensors& xs)
                -> caf::result<shared_tensors, std::uint64_t> {
              shared_tensors ys;
              ys.each.reserve(xs.each.size());
              for (const auto& x : xs.each)
                ys.each.push_back(normalized(x));
              return {std::move(ys), std::uint64_t{0}};
            }};
  }

private:
  shared_tensor normalized(const shared_tensor& x) {
    auto y = pool_.take(x.view().layout());
    kernels_.run(x.view(), y.view());
    return y.share();
  }

  standardizer kernels_;
  tensor_pool pool_;
};

/// Scatters batches among `workers`, a window of messages at a time.
class feeder : public caf::event_based_actor {
public:
  feeder(caf::actor_config& config, const batches& xs,
         std::vector<caf::actor> workers, manner how,
         std::vector<shared_tensor>& last)
      : caf::event_based_actor{config},
        xs_{xs},
        workers_{std::move(workers)},
        how_{std::move(how)},
        last_{last} {}

  caf::behavior make_behavior() override {
    return {[this](run_atom, std::int64_t count, detail::reply_slot& done) {
      done_ = detail::writer_of<bool>(std::move(done));
      count_ = count;
      fed_ = 0;
      missing_ = count * static_cast<std::int64_t>(workers_.size());
      for (std::size_t i = 0; i < how_.window; ++i)
        feed();
    }};
  }

private:
  void feed() {
    if (fed_ == count_)
      return;
    auto first = fed_;
    fed_ = std::min(count_, first + how_.together);
    for (std::size_t r = 0; r < workers_.size(); ++r)
      if (how_.together == 1)
        ask_one(first, r);
      else
        ask_several(first, r);
  }

  [[nodiscard]] shared_tensor part(std::int64_t number, std::size_t r) const {
    const auto& x = xs_[static_cast<std::size_t>(number) % xs_.size()];
    return part_of(x, r, workers_.size());
  }

  void ask_one(std::int64_t number, std::size_t r) {
    detail::request(this, workers_[r], forward_atom_v, part(number, r))
        .then([this, number, r](const shared_tensor& y,
                                std::uint64_t) { take(number + 1, 1, r, y); },
              [this](const caf::error& reason) { done_->put(reason); });
  }

  void ask_several(std::int64_t first, std::size_t r) {
    shared_tensors xs;
    for (auto number = first; number < fed_; ++number)
      xs.each.push_back(part(number, r));
    detail::request(this, workers_[r], forward_atom_v, std::move(xs))
        .then(
            [this, first, r](const shared_tensors& ys, std::uint64_t) {
              auto size = static_cast<std::int64_t>(ys.each.size());
              take(first + size, size, r, ys.each.back());
            },
            [this](const caf::error& reason) { done_->put(reason); });
  }

  /// Worker `r` has answered `size` batches, up to but not including `end`.
  void take(std::int64_t end, std::int64_t size, std::size_t r,
            const shared_tensor& last) {
    if (end == count_)
      last_[r] = last;
    // The last worker's answer makes room for the next batches.
    if (r + 1 == workers_.size())
      feed();
    missing_ -= size;
    if (missing_ == 0)
      done_->put(true);
  }

  const batches& xs_;
  std::vector<caf::actor> workers_;
  manner how_;
  std::vector<shared_tensor>& last_;
  std::int64_t count_ = 0;
  std::int64_t fed_ = 0;
  std::int64_t missing_ = 0;
  std::shared_ptr<future_writer<bool>> done_;
};

class fed_actors : public contestant {
public:
  fed_actors(caf::actor_system& system, const batches& xs,
             std::vector<caf::actor> workers, const manner& how)
      : last_(workers.size()),
        workers_{std::move(workers)},
        feeder_{system.spawn<feeder>(xs, workers_, how, std::ref(last_))} {}

  ~fed_actors() override {
    for (const auto& x : workers_)
      caf::anon_send_exit(x, caf::exit_reason::user_shutdown);
    caf::anon_send_exit(feeder_, caf::exit_reason::user_shutdown);
  }

  void run(std::int64_t count) override {
    auto done = std::make_shared<future_result<bool>>();
    detail::anon_send(feeder_, run_atom_v, count,
                      detail::make_reply_slot(done));
    auto result = done->get();
    if (!result)
      throw std::runtime_error{describe(result.error())};
  }

  [[nodiscard]] std::vector<float> last() const override {
    std::vector<float> y;
    for (const auto& part : last_)
      append(y, part.view());
    return y;
  }

private:
  std::vector<shared_tensor> last_;
  std::vector<caf::actor> workers_;
  caf::actor feeder_;
};

/// Online standardization by `count` slave actors.
class slaves : public contestant {
public:
  slaves(caf::actor_system& system, const batches& xs, std::size_t count,
         const manner& how) {
    for (std::size_t r = 0; r < count; ++r)
      stages_.push_back(std::make_unique<batch_norm_stage>(
          system, batch_norm_options{.name = "bench",
                                     .channels = xs[0].view().shape().channels,
                                     .affine = false,
                                     .online = true}));
    execute_replication_callbacks(stages_);
    std::vector<caf::actor> workers;
    for (auto& stage : stages_)
      workers.push_back(caf::actor_cast<caf::actor>(stage->slave()));
    fed_ = std::make_unique<fed_actors>(system, xs, std::move(workers), how);
  }

  void run(std::int64_t count) override {
    fed_->run(count);
  }

  [[nodiscard]] std::vector<float> last() const override {
    return fed_->last();
  }

private:
  std::vector<std::unique_ptr<batch_norm_stage>> stages_;
  std::unique_ptr<fed_actors> fed_;
};

} // namespace

batches make_batches(std::int64_t records, std::int64_t width) {
  std::minstd_rand random{1};
  std::uniform_real_distribution<float> values{-1, 3};
  batches result;
  for (std::size_t k = 0; k < different_batches; ++k) {
    std::array sizes{records, width};
    tensor_memory memory{make_layout(dtype::float32, sizes)};
    auto* first = static_cast<float*>(memory.view().data());
    std::generate_n(first, memory.view().size(),
                    [&] { return values(random); });
    result.push_back(memory.share());
  }
  return result;
}

shared_tensor part_of(const shared_tensor& batch, std::size_t r,
                      std::size_t count) {
  auto samples = batch.view().shape().samples;
  auto parts = static_cast<std::int64_t>(count);
  auto mine = static_cast<std::int64_t>(r);
  auto first = samples * mine / parts;
  return batch.samples(first, samples * (mine + 1) / parts - first);
}

std::unique_ptr<contestant> make_loop(const batches& xs) {
  return std::make_unique<plain_loop>(xs, 1);
}

std::unique_ptr<contestant> make_loops(std::size_t threads,
                                       std::int64_t records, std::int64_t width,
                                       std::size_t kept) {
  return std::make_unique<plain_loops>(threads, records, width, kept);
}

std::unique_ptr<contestant> make_slaves(caf::actor_system& system,
                                        const batches& xs, std::size_t count,
                                        const manner& how) {
  return std::make_unique<slaves>(system, xs, count, how);
}

std::unique_ptr<contestant> make_kernel_actors(caf::actor_system& system,
                                               const batches& xs,
                                               std::size_t count,
                                               const manner& how) {
  std::vector<caf::actor> workers;
  for (std::size_t r = 0; r < count; ++r)
    workers.push_back(system.spawn<kernel_actor>(xs[0].view().layout()));
  return std::make_unique<fed_actors>(system, xs, std::move(workers), how);
}

std::unique_ptr<contestant> make_plain_actors(caf::actor_system& system,
                                              const batches& xs,
                                              std::size_t count,
                                              const manner& how) {
  std::vector<caf::actor> workers;
  for (std::size_t r = 0; r < count; ++r)
    workers.push_back(system.spawn<plain_actor>());
  return std::make_unique<fed_actors>(system, xs, std::move(workers), how);
}

} // namespace syncnorm::bench
