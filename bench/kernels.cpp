// The CPU kernels against memory itself, libtorch and oneDNN: one process, one
// thread, all candidates in turn on the same memory.

#include "bench/check_same.hpp"
#include "bench/memory.hpp"
#include "bench/peers.hpp"
#include "bench/support.hpp"
#include "kernels/half.hpp"
#include "syncnorm/batch_norm.hpp"

#include <malloc.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::bench;

namespace {

struct shape_case {
  std::int64_t n, c, h, w;
};

constexpr shape_case all_shapes[] = {
    {8, 64, 224, 224}, {32, 64, 56, 56},  {32, 256, 14, 14}, {64, 512, 7, 7},
    {256, 1024, 1, 1}, {16, 4, 224, 224}, {1, 728, 96, 144}};

/// Memory limits the speed for tensors that no cache holds. A virtual machine
/// reports the host's whole last-level cache, or none, so tensors larger than
/// this count in any case, and smaller ones do not if the cache is unknown.
constexpr std::int64_t beyond_caches = std::int64_t{20} << 20;

bool exceeds_caches(std::int64_t bytes) {
  auto cache = last_level_cache();
  return bytes > (cache > 0 ? std::min(beyond_caches, cache) : beyond_caches);
}

class memory_block {
public:
  explicit memory_block(std::size_t bytes)
      : data_{std::aligned_alloc(4096, (bytes + 4095) / 4096 * 4096)} {
    if (data_ == nullptr)
      throw std::bad_alloc{};
    std::memset(data_, 0, bytes);
  }
  memory_block(const memory_block&) = delete;
  memory_block& operator=(const memory_block&) = delete;
  ~memory_block() {
    std::free(data_);
  }

  template <class T = void>
  [[nodiscard]] T* get() const {
    return static_cast<T*>(data_);
  }

private:
  void* data_;
};

void fill(void* data, const tensor_layout& layout, float mean, unsigned seed) {
  std::minstd_rand engine{seed};
  std::uniform_real_distribution<float> distribution{mean - 2, mean + 2};
  auto n = layout.shape.per_channel() * layout.shape.channels;
  for (std::int64_t i = 0; i < n; ++i) {
    auto value = distribution(engine);
    if (layout.type == dtype::bfloat16)
      static_cast<bfloat16*>(data)[i] = to_bfloat16(value);
    else
      static_cast<float*>(data)[i] = value;
  }
}

/// Our layer, on the same memory as the peers.
class our_layer {
public:
  explicit our_layer(const layer_memory& memory)
      : m_{memory},
        channels_{memory.layout.shape.channels},
        values_(std::size_t(4 * channels_)),
        scratch_bytes_{workspace_for(memory.layout)},
        scratch_{scratch_bytes_} {}

  void moments() {
    moments_view out{0, mean(), inv_std(), channels_, dtype::float32, {}};
    batch_moments({}, x(), out, scratch());
    count_ = out.count;
  }

  void finalize() {
    finalize_moments({}, {count_, mean(), inv_std(), channels_, {}, {}},
                     {.eps = m_.eps}, mean(), inv_std(), {});
  }

  void normalize_all() {
    normalize({}, x(), parameters(), {m_.y, m_.layout});
  }

  void forward() {
    moments();
    finalize();
    normalize_all();
  }

  void backward() {
    backward_reduce({}, dy(), x(), parameters(), nullptr,
                    {sums(), sums() + channels_}, scratch());
    backward_input({}, dy(), x(), parameters(),
                   {sums(), sums() + channels_, count_}, nullptr,
                   {m_.dx, m_.layout});
  }

  /// The two passes with one call each, as made by a replica that is alone.
  void whole_forward() {
    batch_norm_forward({}, x(), {.eps = m_.eps}, {mean(), inv_std(), {}},
                       m_.weight, m_.bias, {m_.y, m_.layout}, {}, scratch());
  }

  void whole_backward() {
    batch_norm_backward({}, dy(), x(), parameters(), nullptr,
                        {sums(), sums() + channels_}, {m_.dx, m_.layout},
                        nullptr, scratch());
  }

private:
  static std::size_t workspace_for(const tensor_layout& layout) {
    return std::max({batch_moments_workspace(layout),
                     backward_reduce_workspace(layout),
                     batch_norm_forward_workspace(layout),
                     batch_norm_backward_workspace(layout)});
  }

  [[nodiscard]] const_tensor_view x() const {
    return {m_.x, m_.layout};
  }
  [[nodiscard]] const_tensor_view dy() const {
    return {m_.dy, m_.layout};
  }
  float* mean() {
    return values_.data();
  }
  float* inv_std() {
    return values_.data() + channels_;
  }
  float* sums() {
    return values_.data() + 2 * channels_;
  }
  channel_parameters parameters() {
    return {mean(), inv_std(), m_.weight, m_.bias};
  }
  [[nodiscard]] workspace scratch() const {
    return {scratch_.get(), scratch_bytes_};
  }

  layer_memory m_;
  std::int64_t channels_;
  std::vector<float> values_;
  std::size_t scratch_bytes_;
  memory_block scratch_;
  std::int64_t count_ = 0;
};

/// One shape in one layout and dtype, with everything that is timed on it.
class comparison {
public:
  comparison(const shape_case& shape, memory_format format, dtype type)
      : layout_{make_layout(
          type, std::vector{shape.n, shape.c, shape.h * shape.w}, format)},
        bytes_{layout_.sample_stride * shape.n * std::int64_t(size_of(type))},
        x_{std::size_t(bytes_)},
        y_{std::size_t(bytes_)},
        dy_{std::size_t(bytes_)},
        dx_{std::size_t(bytes_)},
        affine_(std::size_t(2 * shape.c), 1.25F),
        memory_{layout_,   shape.h,        shape.w,
                x_.get(),  y_.get(),       dy_.get(),
                dx_.get(), affine_.data(), affine_.data() + shape.c},
        ours_{memory_},
        torch_{make_libtorch(memory_)},
        onednn_{make_onednn(memory_)} {
    char text[96];
    std::snprintf(text, sizeof(text), "(%ld,%ld,%ld,%ld) %s%s", long(shape.n),
                  long(shape.c), long(shape.h), long(shape.w),
                  format == memory_format::channels_first ? "nchw" : "nhwc",
                  type == dtype::bfloat16 ? " bfloat16" : "");
    name_ = text;
    fill(x_.get(), layout_, 0.5F, 1);
    fill(dy_.get(), layout_, 0.1F, 2);
  }

  [[nodiscard]] const std::string& name() const {
    return name_;
  }

  /// Throws unless all sides compute the same.
  void check() {
    // libtorch adds up channels-last sums in float32, one after the other.
    auto tolerance = layout_.type == dtype::bfloat16 ? 4e-2F : 2e-3F;
    std::vector<std::byte> y(std::size_t(bytes_), std::byte{});
    auto dx = y;
    forget_results();
    ours_.forward();
    ours_.backward();
    std::memcpy(y.data(), y_.get(), y.size());
    std::memcpy(dx.data(), dx_.get(), dx.size());
    forget_results();
    ours_.whole_forward();
    ours_.whole_backward();
    check_same("y", y_.get(), y.data(), layout_, tolerance);
    check_same("dx", dx_.get(), dx.data(), layout_, tolerance);
    for (auto* other : {torch_.get(), onednn_.get()}) {
      forget_results();
      other->forward();
      other->backward();
      check_same("y", y.data(), other->output(), layout_, tolerance);
      check_same("dx", dx.data(), other->input_gradient(), layout_, tolerance);
    }
  }

  void run(report& out, int rounds) {
    auto [all, tensors] = candidates();
    auto times = time_in_turn(all, rounds);
    for (std::size_t i = 0; i < all.size(); ++i)
      out.add(name_ + " " + all[i].name, times[i], bytes_ * tensors[i]);
    auto of = [&all = all, &times](std::string_view name) {
      for (std::size_t i = 0; i < all.size(); ++i)
        if (all[i].name == name)
          return times[i].median * 1e3;
      throw std::out_of_range{std::string{name}};
    };
    if (layout_.type == dtype::float32) {
      against_memory(out, of);
      against_least_bytes(out, of);
    }
    against_peers(out, of);
  }

private:
  /// Overwrites one side's results with NaN, so that no other passes with them.
  void forget_results() {
    for (auto* block : {&y_, &dx_})
      std::memset(block->get(), 0xff, std::size_t(bytes_));
  }

  /// The candidates, and how many tensors each reads and writes at least.
  [[nodiscard]] std::pair<std::vector<candidate>, std::vector<std::int64_t>>
  candidates() {
    std::pair<std::vector<candidate>, std::vector<std::int64_t>> result;
    auto add = [&](const char* name, std::int64_t tensors,
                   std::function<void()> run) {
      result.first.push_back({name, std::move(run)});
      result.second.push_back(tensors);
    };
    auto n = std::size_t(bytes_) / 4;
    auto* x = x_.get<float>();
    auto* y = y_.get<float>();
    const auto* dy = dy_.get<float>();
    add("read", 1, [this, x, n] { sum_ = sum_ + read_memory(x, n); });
    add("read dy", 1, [this, dy, n] { sum_ = sum_ + read_memory(dy, n); });
    add("memcpy", 2, [x, y, n] { std::memcpy(y, x, n * 4); });
    add("copy", 2, [x, y, n] { copy_memory(y, x, n); });
    add("copy streamed", 2, [x, y, n] { copy_memory_streamed(y, x, n); });
    add("batch_moments", 1, [this] { ours_.moments(); });
    add("normalize", 2, [this] {
      ours_.finalize();
      ours_.normalize_all();
    });
    add("forward", 2, [this] { ours_.forward(); });
    add("backward", 3, [this] { ours_.backward(); });
    add("whole forward", 2, [this] { ours_.whole_forward(); });
    add("whole backward", 3, [this] { ours_.whole_backward(); });
    add("libtorch forward", 2, [this] { torch_->forward(); });
    add("libtorch backward", 3, [this] { torch_->backward(); });
    add("oneDNN forward", 2, [this] { onednn_->forward(); });
    add("oneDNN backward", 3, [this] { onednn_->backward(); });
    return result;
  }

  template <class Of>
  void against_memory(report& out, const Of& of) {
    auto read = of("read");
    auto copy = std::min({of("memcpy"), of("copy"), of("copy streamed")});
    auto add = [&](const char* what, double goal, double ours, double limit) {
      auto name = name_ + " " + what;
      out.add(exceeds_caches(bytes_)
                  ? at_least(goal, name, ours, limit, "ms", limit / ours)
                  : reported(name, ours, limit, "ms", limit / ours));
    };
    add("batch_moments / read", 0.85, of("batch_moments"), read);
    add("normalize / copy", 0.85, of("normalize"), copy);
    // Reads dy and x; then reads both again and writes dx: three reads and a
    // copy. Few candidates touch dy, so caches hold less of it than of x.
    add("backward / its bytes", 0.8, of("backward"),
        1.5 * (read + of("read dy")) + copy);
  }

  /// The best that memory allows: each tensor is read or written once per pass;
  /// x and y forward; dy, x and dx backward. A tensor that no cache holds
  /// between the two halves of a pass is read twice: eight tensors instead of
  /// five.
  template <class Of>
  void against_least_bytes(report& out, const Of& of) {
    auto read = of("read");
    auto copy = std::min({of("memcpy"), of("copy"), of("copy streamed")});
    auto least = 2 * copy + read;
    auto add = [&](const char* what, double ours, double theirs) {
      out.add(reported(name_ + " " + what, ours, theirs, "ms", theirs / ours));
    };
    auto whole = of("whole forward") + of("whole backward");
    add("forward + backward / 5 tensors", whole, least);
    add("forward + backward / 8 tensors", whole, least + 3 * read);
    add("5 tensors / libtorch", least,
        of("libtorch forward") + of("libtorch backward"));
    add("5 tensors / oneDNN", least,
        of("oneDNN forward") + of("oneDNN backward"));
  }

  template <class Of>
  void against_peers(report& out, const Of& of) {
    auto [n, c, s] = layout_.shape;
    auto named =
        n == 32 && c == 64 && s == 56 * 56 && layout_.type == dtype::float32;
    auto whole = of("whole forward") + of("whole backward");
    auto steps = of("forward") + of("backward");
    auto add = [&](const char* who, double goal) {
      auto theirs = of(std::string{who} + " forward")
                    + of(std::string{who} + " backward");
      out.add(at_least(named ? goal : 1, name_ + " forward + backward / " + who,
                       whole, theirs, "ms", theirs / whole));
      out.add(at_least(1, name_ + " in steps / " + who, steps, theirs, "ms",
                       theirs / steps));
    };
    add("libtorch", 3);
    add("oneDNN", 4);
  }

  std::string name_;
  tensor_layout layout_;
  std::int64_t bytes_;
  memory_block x_;
  memory_block y_;
  memory_block dy_;
  memory_block dx_;
  std::vector<float> affine_;
  layer_memory memory_;
  our_layer ours_;
  std::unique_ptr<peer> torch_;
  std::unique_ptr<peer> onednn_;
  volatile float sum_ = 0;
};

void run_all(const options& given) {
  report out{"CPU kernels, one thread, ms; against libtorch "
                 + libtorch_version() + " and oneDNN " + onednn_version(),
             given};
  for (auto type : {dtype::float32, dtype::bfloat16})
    for (const auto& shape : all_shapes)
      for (auto format :
           {memory_format::channels_first, memory_format::channels_last}) {
        // Without spatial elements both layouts are the same.
        if (shape.h == 1 && format == memory_format::channels_last)
          continue;
        comparison one{shape, format, type};
        if (one.name().find(given.filter) == std::string::npos)
          continue;
        one.check();
        one.run(out, given.rounds);
      }
  (void) out.finish();
}

} // namespace

int main(int argc, char** argv) try {
  // libtorch allocates an output each time: let it reuse the memory of the
  // previous one, instead of new pages from the system.
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, std::numeric_limits<int>::max());
  run_all(parse_options(argc, argv));
  return EXIT_SUCCESS;
} catch (const std::exception& e) {
  std::fprintf(stderr, "%s\n", e.what());
  return EXIT_FAILURE;
}
