#include "trainer/output/event_file.hpp"
#include "trainer/output/crc32c.hpp"
#include "trainer/output/report.hpp"

#include "trainer/report_files.hpp"
#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>

using namespace syncnorm::train;

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
  // Event(wall_time=1.5, step=300, session_log=SessionLog(status=START))
  const std::string session{"\x09\x00\x00\x00\x00\x00\x00\xf8\x3f\x10\xac\x02"
                            "\x3a\x02\x08\x01",
                            16};
  CHECK(session_event(1.5, 300) == session);
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

TEST_CASE("a run's folder of logs gets an event file, with what each step and "
          "each epoch measured, and a chart") {
  scratch_folder folder;
  settings options;
  options.logdir = (folder / "new" / "log").string();
  {
    report run{options, 0, 0};
    for (std::uint64_t step = 1; step <= 2; ++step)
      run.add(step_row(step));
    run.add(epoch_row(1, 2));
    CHECK(run.finish() == folder / "new" / "log" / "chart.svg");
  }
  auto records = records_of(read_text(only_event_file(options.logdir)));
  const std::vector<std::pair<std::uint64_t, std::string>> expected{
      {1, "loss/training"},      {1, "learning_rate"},
      {2, "loss/training"},      {2, "learning_rate"},
      {2, "loss/held_out"},      {2, "accuracy/held_out"},
      {2, "time/waiting_share"}, {2, "time/samples_per_second"}};
  REQUIRE(records.size() == 1 + expected.size());
  CHECK(contains(records[0], "brain.Event:2"));
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const auto& [step, tag] = expected[i];
    const auto& record = records[i + 1];
    // A double of time before it, the key of the step between.
    CHECK(number_at(record, 10, 1) == step);
    CHECK(contains(record, tag));
  }
}

TEST_CASE("the event file of a run that goes on says from which step on what "
          "others say does not count") {
  scratch_folder folder;
  settings options;
  options.logdir = folder.path().string();
  options.resume = true;
  report{options, 3, 0};
  auto records = records_of(read_text(only_event_file(folder.path())));
  REQUIRE(records.size() == 2);
  CHECK(contains(records[0], "brain.Event:2"));
  // After a double of time and its key.
  CHECK(records[1].substr(9) == "\x10\x04\x3a\x02\x08\x01");
}

TEST_CASE("events are with the system after each step: a process that is "
          "killed leaves those of its checkpoint") {
  scratch_folder folder;
  settings options;
  options.logdir = folder.path().string();
  report run{options, 0, 0};
  for (std::size_t step = 1; step <= 3; ++step) {
    run.add(step_row(step));
    auto file = read_text(only_event_file(folder.path()));
    CHECK(records_of(file).size() == 1 + 2 * step);
  }
}
