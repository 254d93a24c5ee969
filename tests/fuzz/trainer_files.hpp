#pragma once

#include "trainer/failure.hpp"
#include "trainer/input/cifar10.hpp"
#include "trainer/input/dataset.hpp"
#include "trainer/input/idx.hpp"
#include "trainer/output/metrics_file.hpp"
#include "trainer/output/seal.hpp"
#include "trainer/plan/devices.hpp"
#include "trainer/plan/endpoint.hpp"
#include "trainer/plan/launch.hpp"
#include "trainer/plan/run_identity.hpp"
#include "trainer/plan/run_state.hpp"
#include "trainer/plan/settings.hpp"

#include "syncnorm/detail/caf_compat.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

// The trainer's files and texts, read from arbitrary bytes. Refused input
// causes a `failure` of one line.

namespace syncnorm::fuzz {

using byte_span = std::span<const std::byte>;

inline std::string_view text_of(byte_span bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A file that is only in memory, and is removed with the object.
class memory_file {
public:
  explicit memory_file(byte_span content) : number_{memfd_create("fuzz", 0)} {
    if (number_ < 0
        || write(number_, content.data(), content.size())
               != static_cast<ssize_t>(content.size()))
      throw std::runtime_error{"no file in memory"};
  }

  memory_file(const memory_file&) = delete;
  memory_file& operator=(const memory_file&) = delete;

  ~memory_file() {
    close(number_);
  }

  [[nodiscard]] std::filesystem::path path() const {
    return "/proc/self/fd/" + std::to_string(number_);
  }

private:
  int number_;
};

/// As many bytes as the first byte says, and the rest.
inline std::pair<byte_span, byte_span> cut_in_two(byte_span bytes) {
  if (bytes.empty())
    return {};
  auto size =
      std::min(bytes.size() - 1, std::to_integer<std::size_t>(bytes[0]));
  return {bytes.subspan(1, size), bytes.subspan(1 + size)};
}

/// Whether `f` returns true or refuses its input as the program would.
template <class F>
bool good_or_refused(F f) {
  try {
    return f();
  } catch (const train::failure& x) {
    return *x.what() != '\0';
  }
}

/// Whether the images that a reader returned belong together.
inline bool is_sound(const train::labelled_images& x) {
  auto is_label = [](auto label) { return label < train::dataset::classes; };
  return x.shape.size() > 0
         && x.pixels.size() == x.labels.size() * x.shape.size()
         && std::ranges::all_of(x.labels, is_label);
}

/// Whether the images can be both training and held-out part.
inline bool becomes_data(const train::labelled_images& x) {
  return is_sound(x)
         && train::make_dataset(x, x)->mean.size() == x.shape.channels;
}

/// Labels, as many bytes as the first one says, then images; gzipped or not.
inline bool read_idx(byte_span bytes, caf::actor_system&) {
  auto parts = cut_in_two(bytes);
  return good_or_refused([&] {
    memory_file label_file{parts.first};
    memory_file image_file{parts.second};
    return becomes_data(train::load_idx(image_file.path(), label_file.path()));
  });
}

inline bool read_cifar10(byte_span bytes, caf::actor_system&) {
  return good_or_refused([&] {
    memory_file file{bytes};
    std::array files{file.path()};
    return becomes_data(train::load_cifar10(files));
  });
}

/// What was read and written is read as the same again.
inline bool read_metrics_file(byte_span bytes, caf::actor_system&) {
  return good_or_refused([&] {
    memory_file file{bytes};
    for (const auto& row : train::read_metrics(file.path())) {
      auto line = train::to_csv(row);
      auto again = train::parse_csv(line);
      if (!again || train::to_csv(*again) != line)
        return false;
    }
    return true;
  });
}

inline bool read_run_state(byte_span bytes, caf::actor_system&) {
  return good_or_refused([&] {
    auto text =
        train::to_text(train::parse_state(std::string{text_of(bytes)}, "file"));
    return train::to_text(train::parse_state(text, "file")) == text;
  });
}

/// The seal at the end of a checkpoint holds once it is added, and not after a
/// bit has changed.
inline bool read_seal(byte_span bytes, caf::actor_system&) {
  auto holds = [](std::string_view text) {
    try {
      train::check_seal(text, "file");
      return true;
    } catch (const train::failure&) {
      return false;
    }
  };
  std::string text{text_of(bytes)};
  if (holds(text) || text.size() < 2)
    return true;
  auto at = std::to_integer<std::size_t>(bytes[0]);
  train::seal(text);
  auto sealed = holds(text);
  text[at % text.size()] ^= 1;
  return sealed && !holds(text);
}

/// The text after an option's equals sign.
inline bool read_options(byte_span bytes, caf::actor_system&) {
  std::string text{text_of(bytes)};
  return good_or_refused([&] {
           auto count = train::parse_devices(text).size();
           return count > 0 && count <= train::max_replicas;
         })
         && good_or_refused([&] {
              auto where = train::parse_endpoint("join", text);
              auto again =
                  train::parse_endpoint("join", train::to_string(where));
              return again.host == where.host && again.port == where.port;
            })
         && good_or_refused([&] {
              return train::to_string(train::parse_model(text)) == text;
            });
}

/// Variables that a launcher sets, one NAME=VALUE a line.
inline bool read_launch(byte_span bytes, caf::actor_system&) {
  std::map<std::string, std::string, std::less<>> variables;
  for (auto rest = text_of(bytes); !rest.empty();) {
    auto line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(rest.size(), line.size() + 1));
    auto sign = line.find('=');
    if (sign != std::string_view::npos)
      variables.emplace(line.substr(0, sign), line.substr(sign + 1));
  }
  auto look_up = [&](const char* name) -> const char* {
    auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  };
  return good_or_refused([&] {
    auto found = train::find_launch(look_up);
    return !found || (found->size > 1 && found->rank < found->size);
  });
}

/// What an applicant says it would train; the first part is what it should
/// train.
inline bool read_identity(byte_span bytes, caf::actor_system&) {
  auto [expected, found] = cut_in_two(bytes);
  auto x = text_of(expected);
  auto y = text_of(found);
  auto in_one_line = [](std::string_view text) {
    std::string result{text};
    std::erase(result, '\n');
    return result;
  };
  return !train::difference_of(x, x)
         && (train::difference_of(x, y) || in_one_line(x) == in_one_line(y));
}

} // namespace syncnorm::fuzz
