#include "state_file.hpp"

#include "printable.hpp"

#include <fcntl.h>
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

/// The words of each array, by its name.
using saved_arrays = std::map<std::string, std::vector<std::string>>;
/// Their numbers.
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
    whole = stop == end && problem == std::errc{};
  } else {
    char* stop = nullptr;
    result = static_cast<T>(std::strtod(word.c_str(), &stop));
    whole = stop == end;
  }
  auto at_least_0 =
      std::is_integral_v<T> || name == "running_m2" || name == "running_var";
  if (!whole || (at_least_0 && result < 0))
    fail(file, name + ": expected a number"
                   + (at_least_0 ? " of 0 or more" : "") + ", got \""
                   + printable(word) + "\"");
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

saved_arrays parse(const std::string& file) {
  std::ifstream in{file};
  if (!in)
    fail(file, std::string{"cannot be opened: "} + std::strerror(errno));
  std::string line;
  std::getline(in, line);
  if (in.bad())
    fail(file, "cannot be read");
  if (line != heading)
    fail(file, "expected a saved state, beginning \"" + std::string{heading}
                   + "\", got \"" + printable(line) + "\"");
  saved_arrays result;
  while (std::getline(in, line) && line != last_line) {
    std::istringstream words{line};
    std::string name, word;
    std::size_t size = 0;
    words >> name >> size;
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

/// Runs `f(words, values)` for each array of the replica.
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

/// Of a feature that held a NaN or an infinity, which --nan=pass lets through,
/// neither statistic is finite ever after; no record makes only one so.
void expect_both_finite(const std::string& file, const saved_numbers& saved,
                        const std::string& name, const std::string& other) {
  const auto& values = saved.at(name);
  const auto& others = saved.at(other);
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]) && std::isfinite(others[i]))
      fail(file, name + ": expected a finite number in place "
                     + std::to_string(i + 1) + ", where " + other
                     + " has one, got " + std::to_string(values[i]));
}

/// What nothing was learned from is as it was in the beginning.
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
  expect_both_finite(file, saved, "running_mean", "running_m2");
  expect_both_finite(file, saved, "running_m2", "running_mean");
  expect_something_seen(file, saved, "running_mean");
  expect_something_seen(file, saved, "running_m2");
}

/// Makes and removes a file beside another one, of a name that nobody has.
/// Returns 0, or why that cannot be.
int try_beside(const std::string& file) {
  auto name = file + ".XXXXXX";
  int made = ::mkostemp(name.data(), O_CLOEXEC);
  if (made < 0)
    return errno;
  ::close(made);
  ::unlink(name.c_str());
  return 0;
}

/// Returns 0, or why what is there cannot be overwritten. Leaves it as it is.
int try_overwriting(const std::string& file) {
  int found = ::open(file.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  if (found < 0)
    return errno == ENOENT ? 0 : errno;
  ::close(found);
  return 0;
}

int write_and_flush(const std::string& file, std::string_view text) {
  int out =
      ::open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (out < 0)
    return errno;
  int code = 0;
  while (code == 0 && !text.empty()) {
    auto n = ::write(out, text.data(), text.size());
    if (n >= 0)
      text.remove_prefix(static_cast<std::size_t>(n));
    else if (errno != EINTR)
      code = errno;
  }
  if (code == 0 && ::fsync(out) != 0)
    code = errno;
  ::close(out);
  return code;
}

} // namespace

std::string behind_links(const std::string& file) {
  constexpr int most = 40;
  fs::path result{file};
  std::error_code problem;
  for (int links = 0; fs::is_symlink(result, problem); ++links) {
    if (links == most)
      fail(file, std::string{"cannot be written: "} + std::strerror(ELOOP));
    // Which is all of it if it begins with a slash.
    result = result.parent_path() / fs::read_symlink(result, problem);
  }
  return result.string();
}

std::string temporary_of(const std::string& file) {
  return behind_links(file) + ".tmp";
}

void expect_writable(const std::string& file) {
  auto code = try_beside(behind_links(file));
  if (code == 0)
    code = try_overwriting(temporary_of(file));
  if (code != 0)
    fail(file, std::string{"cannot be written: "} + std::strerror(code));
}

void save_state(const std::string& file,
                syncnorm::batch_norm_replica& replica) {
  auto target = behind_links(file);
  auto temporary = temporary_of(file);
  auto code = write_and_flush(temporary, to_text(replica));
  if (code == 0 && std::rename(temporary.c_str(), target.c_str()) != 0)
    code = errno;
  if (code == 0)
    return;
  ::unlink(temporary.c_str());
  fail(file, std::string{"cannot be written: "} + std::strerror(code));
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
  // The others allow everything: a batch of one record makes no variance, and
  // that of finite records may be more than float32 holds.
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
