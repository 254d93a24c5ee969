#include "state_file.hpp"

#include "printable.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <variant>
#include <vector>

namespace pipeline {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view heading = "syncnorm-state 1";
constexpr std::string_view last_line = "end";
/// The limit of counters, which actors send in float64.
constexpr std::int64_t most_counted = std::int64_t{1} << 53;

/// The words of each array, by the array's name.
using saved_arrays = std::map<std::string, std::vector<std::string>>;
/// The numbers of each array, by its name.
using saved_numbers = std::map<std::string, std::vector<double>>;

[[noreturn]] void fail(const std::string& file, const std::string& what) {
  throw std::runtime_error{file + ": " + what};
}

std::string to_word(double x) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%a", x);
  return buffer;
}

std::string to_word(std::int64_t x) {
  return std::to_string(x);
}

template <class T>
T from_word(const std::string& file, const std::string& name,
            const std::string& word) {
  T result{};
  const auto* end = word.c_str() + word.size();
  auto whole = false;
  if constexpr (std::is_integral_v<T>) {
    auto [stop, problem] = std::from_chars(word.c_str(), end, result);
    whole = stop == end && problem == std::errc{} && result <= most_counted;
  } else {
    char* stop = nullptr;
    auto value = std::strtod(word.c_str(), &stop);
    result = static_cast<T>(value);
    whole = stop == end;
    if (whole && std::isinf(result) && !std::isinf(value))
      fail(file, name + ": expected numbers in the range of float32, got \""
                     + printable(word) + "\"");
  }
  auto at_least_0 =
      std::is_integral_v<T> || name == "running_m2" || name == "running_var";
  if (!whole || (at_least_0 && result < 0))
    fail(file, name + ": expected a number"
                   + (std::is_integral_v<T> ? " of 0 to 2^53"
                      : at_least_0          ? " of 0 or more"
                                            : "")
                   + ", got \"" + printable(word) + "\"");
  return result;
}

std::string to_text(syncnorm::batch_norm_replica& replica) {
  std::ostringstream out;
  out << heading << '\n';
  for (const auto& array : replica.state())
    std::visit(
        [&]<class T>(std::span<T> values) {
          using number =
              std::conditional_t<std::is_integral_v<T>, std::int64_t, double>;
          out << array.name << ' ' << values.size();
          for (auto value : values)
            out << ' ' << to_word(static_cast<number>(value));
          out << '\n';
        },
        array.values);
  out << last_line << '\n';
  return out.str();
}

/// A file renamed to a device would take the device's place.
void expect_regular(const std::string& file) {
  std::error_code problem;
  if (fs::exists(file, problem) && !fs::is_regular_file(file, problem))
    fail(file, "expected a file, found something else");
}

saved_arrays read_arrays(std::istream& in, const std::string& file) {
  std::string line;
  std::getline(in, line);
  if (line != heading)
    fail(file, "expected a saved state, beginning \"" + std::string{heading}
                   + "\", got \"" + printable(line) + "\"");
  saved_arrays result;
  while (std::getline(in, line) && line != last_line) {
    std::istringstream words{line};
    std::string name, word;
    std::size_t size = 0;
    if (!(words >> name >> size) || result.contains(name))
      fail(file, "damaged: expected an array, got \"" + printable(line) + "\"");
    auto& array = result[name];
    while (words >> word)
      array.push_back(word);
    if (array.size() != size)
      fail(file, printable(name) + ": damaged: " + std::to_string(size)
                     + " elements announced, " + std::to_string(array.size())
                     + " found");
  }
  if (line != last_line)
    fail(file, "damaged: it ends early");
  if (in.peek() != std::ifstream::traits_type::eof())
    fail(file, "damaged: it goes on behind \"" + std::string{last_line} + "\"");
  return result;
}

saved_arrays parse(const std::string& file) {
  expect_regular(file);
  std::ifstream in{file};
  if (!in)
    fail(file, std::string{"cannot be opened: "} + std::strerror(errno));
  // Makes a failed read throw, with its cause.
  in.exceptions(std::ios::badbit);
  try {
    return read_arrays(in, file);
  } catch (const std::ios::failure& x) {
    fail(file, "cannot be read: " + x.code().message());
  }
}

/// Runs `f(name, words, values)` for each array of the replica.
template <class F>
void for_each_array(const std::string& file, const saved_arrays& saved,
                    syncnorm::batch_norm_replica& replica, F f) {
  for (const auto& array : replica.state()) {
    auto i = saved.find(array.name);
    if (i == saved.end())
      fail(file,
           "has no array " + array.name + ": it was saved in another mode");
    std::visit([&](auto values) { f(array.name, i->second, values); },
               array.values);
  }
}

/// Once a feature has held a NaN or an infinity, which --nan=pass lets through,
/// neither of its statistics is ever finite again. If its squares were too
/// large for float32, M2 is not finite. Records are float32, so their mean is
/// in that range.
void expect_possible_means(const std::string& file,
                           const saved_numbers& saved) {
  const auto& means = saved.at("running_mean");
  const auto& m2 = saved.at("running_m2");
  auto refuse = [&](std::size_t i, const std::string& expected,
                    const std::string& where) {
    std::ostringstream text;
    text << "running_mean: expected " << expected << " in place " << i + 1
         << where << ", got " << means[i];
    fail(file, text.str());
  };
  for (std::size_t i = 0; i < means.size(); ++i)
    if (std::isfinite(means[i])
        && std::abs(means[i]) > std::numeric_limits<float>::max())
      refuse(i, "a number in the range of float32", "");
    else if (!std::isfinite(means[i]) && std::isfinite(m2[i]))
      refuse(i, "a finite number", ", where running_m2 has one");
}

std::string whole_text(double x) {
  char buffer[40];
  std::snprintf(buffer, sizeof(buffer), "%.0f", x);
  return buffer;
}

/// Each batch had one record or more.
void expect_batches_of_records(const std::string& file,
                               const saved_numbers& saved) {
  auto batches = saved.at("num_batches_tracked")[0];
  auto records = saved.at("num_elements_tracked")[0];
  if (batches > records || (batches == 0) != (records == 0))
    fail(file, std::string{"num_batches_tracked: expected "}
                   + (records == 0 ? "0" : "1") + " to " + whole_text(records)
                   + ", the number of elements, got " + whole_text(batches));
}

/// Statistics that have seen nothing are as they were in the beginning.
void expect_something_seen(const std::string& file, const saved_numbers& saved,
                           const std::string& name) {
  constexpr auto counter = "num_elements_tracked";
  if (saved.at(counter)[0] == 0
      && std::ranges::any_of(saved.at(name), [](double x) { return x != 0; }))
    fail(file, std::string{counter} + ": expected 1 or more, for " + name
                   + " is not 0, got 0");
}

/// Refuses what the program cannot have written.
void expect_online_statistics(const std::string& file,
                              const saved_numbers& saved) {
  expect_possible_means(file, saved);
  expect_something_seen(file, saved, "running_mean");
  expect_something_seen(file, saved, "running_m2");
  expect_batches_of_records(file, saved);
}

/// A file beside another one, with a name that nobody had. It is removed with
/// the object, unless it has replaced the other file.
class file_beside {
public:
  explicit file_beside(const std::string& file) : file_{file} {
    constexpr int most = 1000;
    for (int i = 0; i < most && number_ < 0 && (i == 0 || errno == EEXIST);
         ++i) {
      name_ = file + '.' + std::to_string(::getpid()) + '.' + std::to_string(i);
      number_ =
          ::open(name_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    code_ = number_ < 0 ? errno : 0;
  }

  file_beside(const file_beside&) = delete;
  file_beside& operator=(const file_beside&) = delete;

  ~file_beside() {
    if (number_ < 0)
      return;
    ::close(number_);
    if (!is_moved_)
      ::unlink(name_.c_str());
  }

  /// 0, or why it could not be made or written.
  [[nodiscard]] int code() const noexcept {
    return code_;
  }

  /// Writes `text`, up to the disk, and replaces the other file, with that
  /// file's permissions.
  void replace_by(std::string_view text) {
    keep_permissions();
    while (code_ == 0 && !text.empty()) {
      auto n = ::write(number_, text.data(), text.size());
      if (n >= 0)
        text.remove_prefix(static_cast<std::size_t>(n));
      else if (errno != EINTR)
        code_ = errno;
    }
    if (code_ == 0 && ::fsync(number_) != 0)
      code_ = errno;
    if (code_ == 0 && std::rename(name_.c_str(), file_.c_str()) != 0)
      code_ = errno;
    is_moved_ = code_ == 0;
  }

private:
  void keep_permissions() {
    struct stat there {};
    if (code_ == 0 && ::stat(file_.c_str(), &there) == 0
        && ::fchmod(number_, there.st_mode & 0777) != 0)
      code_ = errno;
  }

  std::string file_;
  std::string name_;
  int number_ = -1;
  int code_ = 0;
  bool is_moved_ = false;
};

} // namespace

std::string behind_links(const std::string& file) {
  constexpr int most = 40;
  fs::path result{file};
  std::error_code problem;
  for (int links = 0; fs::is_symlink(result, problem); ++links) {
    if (links == most)
      fail(file, std::string{"cannot be opened: "} + std::strerror(ELOOP));
    // A target that begins with a slash replaces the whole path.
    result = result.parent_path() / fs::read_symlink(result, problem);
  }
  return result.string();
}

void expect_writable(const std::string& file) {
  expect_regular(file);
  if (auto code = file_beside{behind_links(file)}.code(); code != 0)
    fail(file, std::string{"cannot be written: "} + std::strerror(code));
}

void save_state(const std::string& file,
                syncnorm::batch_norm_replica& replica) {
  expect_regular(file);
  file_beside out{behind_links(file)};
  out.replace_by(to_text(replica));
  if (out.code() != 0)
    fail(file, std::string{"cannot be written: "} + std::strerror(out.code()));
}

void load_state(const std::string& file,
                syncnorm::batch_norm_replica& replica) {
  auto saved = parse(file);
  saved_numbers numbers;
  // All is read before anything is overwritten.
  for_each_array(file, saved, replica,
                 [&]<class T>(const std::string& name, const auto& words,
                              std::span<T> values) {
                   if (words.size() != values.size())
                     fail(file, name + ": expected "
                                    + std::to_string(values.size())
                                    + " elements, one a channel, got "
                                    + std::to_string(words.size()));
                   for (const auto& word : words)
                     numbers[name].push_back(
                         static_cast<double>(from_word<T>(file, name, word)));
                 });
  for (const auto& [name, words] : saved)
    if (!numbers.contains(name))
      fail(file, printable(name) + ": expected an array of this mode's");
  // The other modes allow everything: a batch of one record has no variance,
  // and the variance of finite records may exceed what float32 holds.
  if (replica.options().online)
    expect_online_statistics(file, numbers);
  for_each_array(file, saved, replica,
                 [&]<class T>(const std::string& name, const auto& words,
                              std::span<T> values) {
                   for (std::size_t i = 0; i < values.size(); ++i)
                     values[i] = from_word<T>(file, name, words[i]);
                 });
}

bool holds_online_state(const std::string& file) {
  return parse(file).contains("running_m2");
}

} // namespace pipeline
