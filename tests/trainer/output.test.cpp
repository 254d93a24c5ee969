#include "trainer/output/atomic_file.hpp"
#include "trainer/output/chart.hpp"
#include "trainer/output/crc32c.hpp"
#include "trainer/output/event_file.hpp"
#include "trainer/output/metrics_file.hpp"
#include "trainer/output/progress.hpp"
#include "trainer/output/report.hpp"

#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <fstream>

using namespace syncnorm::train;

namespace {

void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream{path, std::ios::binary} << text;
}

metrics_row step_row(std::uint64_t step) {
  metrics_row row;
  row.epoch = 1;
  row.step = step;
  row.learning_rate = 0.1;
  row.samples = 64;
  row.loss = 1.0 / 3.0;
  row.seconds = 0.25;
  row.waiting = 0.5;
  return row;
}

metrics_row epoch_row(std::uint64_t epoch, std::uint64_t step) {
  auto row = step_row(step);
  row.epoch = epoch;
  row.held_out_loss = 0.1;
  row.held_out_accuracy = 0.97;
  return row;
}

/// While it lives, no file grows beyond `bytes`: a full disk for one process.
class small_disk {
public:
  explicit small_disk(rlim_t bytes) {
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit limit{bytes, before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    handler_ = std::signal(SIGXFSZ, SIG_IGN);
  }

  small_disk(const small_disk&) = delete;
  small_disk& operator=(const small_disk&) = delete;

  ~small_disk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

private:
  rlimit before_{};
  void (*handler_)(int) = nullptr;
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t result = 0;
  for (auto at = text.find(part); at != std::string::npos;
       at = text.find(part, at + 1))
    ++result;
  return result;
}

} // namespace

TEST_CASE("CRC-32C gives the values of RFC 3720") {
  CHECK(crc32c("123456789") == 0xe3069283U);
  CHECK(crc32c(std::string(32, '\0')) == 0x8a9136aaU);
  CHECK(crc32c(std::string(32, '\xff')) == 0x62a8ab43U);
}

TEST_CASE("an event has the bytes that TensorBoard's own writer gives it") {
  // tensorboard.compat.proto: Event(wall_time=1.5, step=300, summary=Summary(
  // value=[Summary.Value(tag="loss", simple_value=0.5)])).SerializeToString()
  const std::string event{"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02"
                          "\x2a\x0d\x0a\x0b\x0a\x04loss\x15\x00\x00\x00\x3f",
                          27};
  CHECK(scalar_event(1.5, 300, "loss", 0.5F) == event);
  // Event(wall_time=1.5, file_version="brain.Event:2")
  const std::string version{"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x1a\x0d"
                            "brain.Event:2",
                            24};
  CHECK(version_event(1.5) == version);
}

TEST_CASE("a record is framed by its length and two masked "
          "checksums") {
  auto record = tf_record("abc");
  REQUIRE(record.size() == 8 + 4 + 3 + 4);
  CHECK(record.substr(0, 8) == std::string{"\x03\0\0\0\0\0\0\0", 8});
  CHECK(record.substr(12, 3) == "abc");
  auto unmasked = [&](std::size_t at) {
    std::uint32_t x = 0;
    for (std::size_t i = 0; i < 4; ++i)
      x |= std::uint32_t{static_cast<std::uint8_t>(record[at + i])} << 8 * i;
    x -= 0xa282ead8U;
    return x >> 17 | x << 15;
  };
  CHECK(unmasked(8) == crc32c(record.substr(0, 8)));
  CHECK(unmasked(15) == crc32c("abc"));
}

TEST_CASE("a row of metrics comes back with the same bits") {
  for (const auto& row : {step_row(7), epoch_row(2, 46)}) {
    auto again = parse_csv(to_csv(row));
    REQUIRE(again);
    CHECK(again->loss == row.loss);
    CHECK(again->step == row.step);
    CHECK(again->held_out_accuracy == row.held_out_accuracy);
    CHECK(again->is_epoch() == row.is_epoch());
  }
}

TEST_CASE("a metrics file loses a line that was cut off, and "
          "refuses others") {
  scratch_folder folder;
  metrics_file{folder / "m.csv", {step_row(1), step_row(2)}};
  auto text = read_text(folder / "m.csv");
  write_text(folder / "m.csv", text.substr(0, text.size() - 5));
  CHECK(read_metrics(folder / "m.csv").size() == 1);
  write_text(folder / "m.csv", text + "something else\n");
  CHECK(contains(message_of([&] { (void) read_metrics(folder / "m.csv"); }),
                 "m.csv: line 4: expected a row of metrics"));
  write_text(folder / "m.csv", "a,b\n");
  CHECK(contains(message_of([&] { (void) read_metrics(folder / "m.csv"); }),
                 "m.csv: line 1"));
}

TEST_CASE("a resumed run keeps the rows up to its checkpoint, "
          "and no others") {
  scratch_folder folder;
  settings options;
  options.metrics = folder / "m.csv";
  {
    report first{options, 0};
    for (std::uint64_t step = 1; step <= 5; ++step)
      first.add(step_row(step));
  }
  options.resume = true;
  report second{options, 3};
  second.add(step_row(4));
  auto rows = read_metrics(options.metrics);
  REQUIRE(rows.size() == 4);
  CHECK(rows.back().step == 4);
}

TEST_CASE("a file is replaced whole, or kept when the disk is full") {
  scratch_folder folder;
  auto file = folder / "checkpoint";
  write_atomically(file, "old");
  {
    small_disk limit{1000};
    auto message =
        message_of([&] { write_atomically(file, std::string(5000, 'x')); });
    CHECK(contains(message, "checkpoint: cannot be written: "));
  }
  CHECK(read_text(file) == "old");
  CHECK_FALSE(std::filesystem::exists(folder / "checkpoint.tmp"));
  write_atomically(file, "new");
  CHECK(read_text(file) == "new");
}

TEST_CASE("a folder that cannot be written to is refused by name") {
  scratch_folder folder;
  write_text(folder / "file", "");
  CHECK(contains(message_of([&] { require_writable_folder(folder / "file"); }),
                 "file: cannot be"));
  CHECK(contains(
      message_of([&] { write_atomically(folder / "none" / "file", "x"); }),
      "file: cannot be written: No such file"));
  CHECK(contains(message_of([] {
                   growing_file file{"/dev/full", false};
                   file.append("x");
                   file.flush();
                 }),
                 "/dev/full: cannot be written: No space left"));
}

TEST_CASE("a chart draws each series and leaves out what is not "
          "finite") {
  chart_series series{"a<b", {{1, 2}, {2, NAN}, {4, 8, 1}}};
  auto svg = render_svg({{"title", "x", "y", {series}, true}});
  CHECK(count(svg, "<polyline") == 1);
  CHECK(contains(svg, "a&lt;b"));
  CHECK_FALSE(contains(svg, "nan"));
  CHECK(svg.ends_with("</svg>\n"));
  // Two points are left of three, the first and the last of the
  // x axis.
  CHECK(contains(svg, "points=\"64.0,"));
  CHECK(contains(svg, "444.0,"));
  CHECK(render_svg({{"empty", "x", "y", {}}}).ends_with("</svg>\n"));
}

TEST_CASE("a chart with powers of ten along y has 1, 10 and 100 at the same "
          "distances, and leaves out zero") {
  chart_panel panel{
      "title", "x", "y", {{"a", {{0, 1}, {1, 10}, {2, 0}, {3, 100}}}}};
  panel.log10_y = true;
  auto svg = render_svg({panel});
  CHECK(contains(svg, "64.0,272.0 190.7,154.0 444.0,36.0 "));
  for (const auto* label : {">1<", ">10<", ">100<"})
    CHECK(contains(svg, label));
  CHECK_FALSE(contains(svg, "inf"));
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
}
