#include "trainer/output/progress.hpp"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

namespace syncnorm::train {

namespace {

constexpr double redraw_seconds = 0.1;

double steady_time() {
  std::chrono::duration<double> time =
      std::chrono::steady_clock::now().time_since_epoch();
  return time.count();
}

std::string clock_text(double seconds) {
  auto whole = static_cast<std::uint64_t>(seconds + 0.5);
  if (whole < 3600)
    return fmt::format("{}:{:02}", whole / 60, whole % 60);
  return fmt::format("{}:{:02}:{:02}", whole / 3600, whole / 60 % 60,
                     whole % 60);
}

/// @param evaluations how many are still to come.
std::string pace(const progress_state& x, std::uint64_t evaluations) {
  if (x.seconds <= 0 || x.done == 0)
    return "";
  auto rate = static_cast<double>(x.done) / x.seconds;
  auto left = x.samples * (x.epochs - x.epoch + 1) - x.done;
  auto seconds = static_cast<double>(left) / rate
                 + static_cast<double>(evaluations) * x.evaluation;
  return fmt::format("  {:.0f} samples/s  waiting {:4.1f} %  ETA {}", rate,
                     100 * x.waiting, clock_text(seconds));
}

std::string head(const progress_state& x) {
  return fmt::format("epoch {:>{}}/{}", x.epoch,
                     std::to_string(x.epochs).size(), x.epochs);
}

/// As much of the line as fits in one row of the terminal, with a column left
/// for the cursor; all of it if the width is not known.
std::string one_row(std::FILE* terminal, std::string line) {
  winsize size{};
  if (::ioctl(fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
    line.resize(std::min<std::size_t>(line.size(), size.ws_col - 1U));
  return line;
}

} // namespace

std::string progress_line(const progress_state& state) {
  return fmt::format("{}  {:>{}}/{}  loss {:.4f}{}", head(state), state.done,
                     std::to_string(state.samples).size(), state.samples,
                     state.loss, pace(state, state.epochs - state.epoch + 1));
}

std::string epoch_line(const progress_state& state, const metrics_row& epoch) {
  return fmt::format("{}  loss {:.4f}  held-out loss {:.4f}  accuracy {:.2f} "
                     "%{}",
                     head(state), epoch.loss, epoch.held_out_loss.value_or(0),
                     100 * epoch.held_out_accuracy.value_or(0),
                     pace(state, state.epochs - state.epoch));
}

progress_display::progress_display(std::FILE* out)
    : out_{out},
      terminal_{isatty(fileno(out)) == 1} {}

void progress_display::clear() {
  // Back to the first column, and erase the line.
  if (terminal_)
    std::fputs("\r\033[K", out_);
}

void progress_display::show(const progress_state& state) {
  if (!terminal_ || steady_time() - last_drawn_ < redraw_seconds)
    return;
  last_drawn_ = steady_time();
  clear();
  // A second row would not be erased.
  std::fputs(one_row(out_, progress_line(state)).c_str(), out_);
  std::fflush(out_);
}

void progress_display::finish(const progress_state& state,
                              const metrics_row& epoch) {
  note(epoch_line(state, epoch));
}

void progress_display::note(const std::string& line) {
  clear();
  std::fputs((line + '\n').c_str(), out_);
  std::fflush(out_);
}

} // namespace syncnorm::train
