#include "trainer/output/progress.hpp"

#include "trainer/report_files.hpp"
#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <pty.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>

using namespace syncnorm::train;

namespace {

/// What a program writes to a terminal, or to a file.
struct written {
  std::string terminal;
  std::string file;
};

/// What comes before `mark`.
std::string read_to(int descriptor, const std::string& mark) {
  std::string result;
  char some = 0;
  while (!result.ends_with(mark)) {
    REQUIRE(::read(descriptor, &some, 1) == 1);
    result += some;
  }
  return result.substr(0, result.size() - mark.size());
}

/// @param draw    uses a display.
/// @param columns of the terminal; 0 if it does not say.
template <class F>
written draw_on_both(F draw, unsigned short columns = 0) {
  written result;
  int main = -1;
  int side = -1;
  winsize size{};
  size.ws_col = columns;
  REQUIRE(openpty(&main, &side, nullptr, nullptr, &size) == 0);
  auto* terminal = fdopen(side, "w");
  draw(terminal);
  std::fputs("that is all", terminal);
  std::fflush(terminal);
  result.terminal = read_to(main, "that is all");
  std::fclose(terminal);
  ::close(main);
  scratch_folder folder;
  auto* file = std::fopen((folder / "out").c_str(), "w");
  draw(file);
  std::fclose(file);
  result.file = read_text(folder / "out");
  return result;
}

} // namespace

TEST_CASE("progress is redrawn on a terminal; elsewhere there is a line an "
          "epoch") {
  progress_state state{1, 2, 64, 1437, 0.5, 0.1, 0.25};
  auto text = draw_on_both([&](std::FILE* out) {
    progress_display display{out};
    display.note("begin");
    display.show(state);
    display.finish(state, epoch_row(1, 23));
  });
  auto line = epoch_line(state, epoch_row(1, 23));
  CHECK(text.file == "begin\n" + line + "\n");
  const std::string erase = "\r\033[K";
  CHECK(text.terminal
        == erase + "begin\r\n" + erase + progress_line(state) + erase + line
               + "\r\n");
}

TEST_CASE("progress takes one row of a terminal, however narrow: a second one "
          "would stay") {
  progress_state state{1, 2, 64, 1437, 0.5, 0.1, 0.25};
  auto line = progress_line(state);
  auto columns = [&](std::size_t count) {
    return draw_on_both(
               [&](std::FILE* out) { progress_display{out}.show(state); },
               static_cast<unsigned short>(count))
        .terminal;
  };
  const std::string erase = "\r\033[K";
  CHECK(columns(line.size() + 1) == erase + line);
  CHECK(columns(line.size()) == erase + line.substr(0, line.size() - 1));
  CHECK(columns(40) == erase + line.substr(0, 39));
  CHECK(columns(1) == erase);
}

TEST_CASE("progress is drawn ten times a second at most") {
  using clock = std::chrono::steady_clock;
  std::chrono::duration<double> time{};
  auto text = draw_on_both([&](std::FILE* out) {
    progress_display display{out};
    auto start = clock::now();
    for (int i = 0; i < 20; ++i)
      display.show({1, 2, 64, 1437, 0.5, 0.1, 0.25});
    time += clock::now() - start;
  });
  // By the time that it took: however slow the machine, this is no race.
  CHECK(count(text.terminal, "epoch") <= 1 + 10 * time.count());
}

TEST_CASE("a line is with the system when it has been printed") {
  scratch_folder folder;
  auto* file = std::fopen((folder / "out").c_str(), "w");
  progress_display{file}.note("begin");
  CHECK(read_text(folder / "out") == "begin\n");
  std::fclose(file);
}

TEST_CASE("the progress line says where the run stands") {
  progress_state state{3, 15, 832, 1437, 0.24713, 0.0832, 0.041};
  // 10000 samples a second, and 605 + 12 * 1437 samples to go.
  CHECK(progress_line(state)
        == "epoch  3/15   832/1437  loss 0.2471  10000 "
           "samples/s  waiting  4.1 "
           "%  ETA 0:02");
  auto line = epoch_line(state, epoch_row(3, 69));
  CHECK(contains(line, "held-out loss 0.1000  accuracy 97.00 %"));
  // Before there is a pace.
  auto first = state;
  first.seconds = 0;
  CHECK(progress_line(first).ends_with("loss 0.2471"));
  first = state;
  first.done = 0;
  CHECK(progress_line(first).ends_with("loss 0.2471"));
}

TEST_CASE("the time left counts an evaluation after each epoch") {
  progress_state state{3, 15, 832, 1437, 0.24713, 0.0832, 0.041};
  state.evaluation = 10;
  // 1.8 s of steps; after the epoch its own evaluation has been.
  CHECK(contains(progress_line(state), "ETA 2:12"));
  CHECK(contains(epoch_line(state, epoch_row(3, 69)), "ETA 2:02"));
  progress_state last{15, 15, 1437, 1437, 0.25, 0.1, 0, 3599};
  CHECK(contains(progress_line(last), "ETA 59:59"));
  last.evaluation = 3600;
  CHECK(contains(progress_line(last), "ETA 1:00:00"));
}
