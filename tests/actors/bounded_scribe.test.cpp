#include "actors/bounded_scribe.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

using namespace syncnorm::detail;

namespace {

/// Bytes that vectors with this allocator have.
std::size_t taken = 0;

template <class T>
struct counting_allocator : std::allocator<T> {
  template <class U>
  struct rebind {
    using other = counting_allocator<U>;
  };

  T* allocate(std::size_t n) {
    taken += n * sizeof(T);
    return std::allocator<T>::allocate(n);
  }

  void deallocate(T* p, std::size_t n) {
    taken -= n * sizeof(T);
    std::allocator<T>::deallocate(p, n);
  }
};

using buffer = std::vector<char, counting_allocator<char>>;

/// In place of CAF's: for each part of a message that is whole the next one is
/// announced, as CAF's broker does. What comes are bytes that count up.
class scripted_scribe {
public:
  explicit scripted_scribe(const std::vector<std::size_t>& parts)
      : parts_{parts} {}

  virtual ~scripted_scribe() = default;

  virtual void configure_read(caf::io::receive_policy::config config) {
    next_ = config.second;
  }

  virtual bool consume(worker_type*, const void* data, std::size_t size) {
    const auto* first = static_cast<const char*>(data);
    whole_.emplace_back(first, first + size);
    announce();
    return true;
  }

  buffer& rd_buf() {
    return buffer_;
  }

  /// Announces the next part, if there is one.
  void announce() {
    if (whole_.size() < parts_.size())
      configure_read(caf::io::receive_policy::exactly(parts_[whole_.size()]));
  }

  /// Reads the next bytes, as CAF's stream does. Returns how many.
  std::size_t read() {
    auto size = next_;
    buffer_.resize(size);
    std::iota(buffer_.begin(), buffer_.end(), static_cast<char>(come_));
    come_ += size;
    consume(nullptr, buffer_.data(), size);
    return size;
  }

  /// The parts that are whole.
  [[nodiscard]] const std::vector<std::string>& whole() const {
    return whole_;
  }

  [[nodiscard]] static std::string addr() {
    return "somebody";
  }

  [[nodiscard]] static bool detached() {
    return false;
  }

  virtual void graceful_shutdown() {}

  static void io_failure(worker_type*, caf::io::network::operation) {}

protected:
  virtual caf::message detach_message() {
    return {};
  }

private:
  std::vector<std::size_t> parts_;
  std::vector<std::string> whole_;
  buffer buffer_;
  std::size_t next_ = 0;
  std::size_t come_ = 0;
};

constexpr std::size_t mib = std::size_t{1} << 20U;
constexpr std::size_t page = std::size_t{1} << 12U;
constexpr std::size_t header = 32;

const connection_rules rules{nullptr, 64 * mib};
const std::shared_ptr<const door> nobody;

/// Whether these are the bytes that came, in their order.
bool counts_up(const std::vector<std::string>& parts) {
  std::size_t position = 0;
  for (const auto& part : parts)
    for (auto x : part)
      if (x != static_cast<char>(position++))
        return false;
  return true;
}

} // namespace

TEST_CASE("what a long message took is free again after it") {
  std::vector<std::size_t> parts{header, 20 * mib + 7, header, 16, header, 9};
  bounded_scribe<scripted_scribe> x{rules, nobody, parts};
  x.announce();
  while (x.whole().size() < parts.size())
    x.read();
  for (std::size_t i = 0; i < parts.size(); ++i)
    CHECK(x.whole()[i].size() == parts[i]);
  CHECK(counts_up(x.whole()));
  // Two buffers of what every message may have.
  CHECK(taken <= 2 * mib);
}

TEST_CASE("a message takes at most four times the bytes of it that have come, "
          "beside what every message may have") {
  bounded_scribe<scripted_scribe> x{rules, nobody,
                                    std::vector<std::size_t>{header, 20 * mib}};
  x.announce();
  x.read();
  std::size_t come = 0;
  while (x.whole().size() < 2) {
    come += x.read();
    CHECK(taken <= 4 * come + 2 * mib);
  }
}

TEST_CASE("who has not completed the handshake gets a page for it, and no more "
          "than comes") {
  auto before = taken;
  bounded_scribe<scripted_scribe> x{
      rules, nobody, std::vector<std::size_t>{header, mib, header, mib}};
  x.announce();
  x.read();
  CHECK(taken - before <= 2 * page);
  std::size_t come = 0;
  while (x.whole().size() < 2) {
    // CAF's stream takes so much before it comes.
    auto next = x.read();
    CHECK(next <= page);
    come += next;
    CHECK(taken - before <= 4 * come + 2 * page);
  }
  while (x.whole().size() < 4)
    x.read();
  CHECK(counts_up(x.whole()));
}
