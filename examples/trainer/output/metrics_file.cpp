#include "trainer/output/metrics_file.hpp"

#include "trainer/failure.hpp"
#include "trainer/output/atomic_file.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

namespace syncnorm::train {

namespace {

std::string optional_text(const std::optional<double>& x) {
  return x ? fmt::format("{}", *x) : std::string{};
}

/// The next field of a line, and what is left of the line.
std::string_view take_field(std::string_view& line) {
  auto comma = line.find(',');
  auto field = line.substr(0, comma);
  line = comma == std::string_view::npos ? std::string_view{}
                                         : line.substr(comma + 1);
  return field;
}

template <class Number>
bool read(std::string_view& line, Number& x) {
  auto field = take_field(line);
  const auto* end = field.data() + field.size();
  auto [rest, code] = std::from_chars(field.data(), end, x);
  return code == std::errc{} && rest == end;
}

bool read(std::string_view& line, std::optional<double>& x) {
  if (line.starts_with(',')) {
    line.remove_prefix(1);
    return true;
  }
  return read(line, x.emplace());
}

/// Throws if something other than metrics would be lost.
void require_metrics(const std::filesystem::path& path) {
  if (!std::filesystem::is_regular_file(path))
    return;
  auto begin = read_beginning(path, metrics_header.size() + 1);
  if (!begin.empty() && begin != fmt::format("{}\n", metrics_header))
    throw failure{fmt::format("{}: expected metrics of an earlier run, or no "
                              "file, found another file",
                              path.string())};
}

/// A device or a pipe cannot be replaced, and a link that leads to nothing yet
/// is to stay.
bool is_replaced(const std::filesystem::path& path) {
  return std::filesystem::is_regular_file(path)
         || !std::filesystem::exists(std::filesystem::symlink_status(path));
}

std::optional<named_lock> lock_of(const std::filesystem::path& path) {
  if (!is_replaced(path))
    return std::nullopt;
  return std::optional<named_lock>{
      std::in_place, path.string() + ".lock",
      fmt::format("{}: another run writes its metrics here", path.string())};
}

/// Writes the earlier rows in one go: nothing is lost if the disk is full.
growing_file rewrite(const std::filesystem::path& path,
                     const std::vector<metrics_row>& rows) {
  require_metrics(path);
  auto text = fmt::format("{}\n", metrics_header);
  for (const auto& row : rows)
    text += to_csv(row) + '\n';
  if (is_replaced(path)) {
    write_atomically(path, text);
    return {path, true};
  }
  // The reader of a pipe sees its end when it is closed.
  growing_file file{path, false};
  file.append(text);
  file.flush();
  return file;
}

} // namespace

std::string to_csv(const metrics_row& row) {
  return fmt::format(
      "{},{},{},{},{},{},{},{},{:.6f},{:.4f}",
      row.is_epoch() ? "epoch" : "step", row.epoch, row.step, row.learning_rate,
      row.samples, row.loss, optional_text(row.held_out_loss),
      optional_text(row.held_out_accuracy), row.seconds, row.waiting);
}

std::optional<metrics_row> parse_csv(std::string_view line) {
  auto kind = take_field(line);
  metrics_row row;
  auto good = read(line, row.epoch) && read(line, row.step)
              && read(line, row.learning_rate) && read(line, row.samples)
              && read(line, row.loss) && read(line, row.held_out_loss)
              && read(line, row.held_out_accuracy) && read(line, row.seconds)
              && read(line, row.waiting) && line.empty()
              && kind == (row.is_epoch() ? "epoch" : "step");
  return good ? std::optional{row} : std::nullopt;
}

std::vector<metrics_row> read_metrics(const std::filesystem::path& path) {
  auto text = read_whole(path);
  std::vector<metrics_row> rows;
  std::size_t number = 0;
  // A last line without an end was cut off when the program was killed.
  for (std::size_t at = 0, end = 0;
       (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    auto line = std::string_view{text}.substr(at, end - at);
    ++number;
    auto row = number == 1 ? std::nullopt : parse_csv(line);
    if (number == 1 ? line != metrics_header : !row)
      throw failure{fmt::format("{}: line {}: expected a row of metrics, found "
                                "\"{}\"",
                                path.string(), number, line.substr(0, 60))};
    if (row)
      rows.push_back(*row);
  }
  return rows;
}

metrics_file::metrics_file(const std::filesystem::path& path,
                           const std::vector<metrics_row>& rows)
    : lock_{lock_of(path)},
      file_{rewrite(path, rows)} {}

void metrics_file::add(const metrics_row& row) {
  file_.append(to_csv(row) + '\n');
  file_.flush();
}

} // namespace syncnorm::train
