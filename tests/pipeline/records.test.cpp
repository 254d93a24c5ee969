#include "csv_reader.hpp"
#include "idx_reader.hpp"
#include "state_file.hpp"

#include "tests/pipeline/support.hpp"

#include <doctest/doctest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <thread>

using namespace pipeline;
using namespace pipeline::test;

namespace {

using rows = std::vector<std::vector<float>>;

struct reading {
  rows records;
  record_counts counts;
  std::string failure;
};

reading read_all(record_reader& reader) {
  reading result;
  std::vector<float> row(static_cast<std::size_t>(reader.features()));
  try {
    while (reader.next(row))
      result.records.push_back(row);
  } catch (const std::exception& x) {
    result.failure = x.what();
  }
  result.counts = reader.counts();
  return result;
}

reading read_csv(const std::string& text, record_policies policies = {},
                 bool header = false) {
  csv_reader reader{std::make_unique<std::istringstream>(text), "in.csv",
                    header, policies};
  return read_all(reader);
}

constexpr record_policies skip_all{bad_record_policy::skip,
                                   bad_record_policy::skip};

} // namespace

TEST_CASE("CSV: a record a line, with blanks, carriage returns, empty lines "
          "and a heading") {
  auto got = read_csv("\na,b\n1, 2.5\r\n\n -3e1 ,\t4\t\n5,6", {}, true);
  CHECK(got.failure.empty());
  CHECK(got.records == rows{{1, 2.5}, {-30, 4}, {5, 6}});
  CHECK(got.counts.delivered == 3);
}

TEST_CASE("CSV: text where a number belongs, and another number of features, "
          "are refused with file, line and column") {
  auto got = read_csv("1,2\n3,4x\n5,6\n");
  CHECK(got.failure
        == "in.csv, line 2, column 2: expected a number, got \"4x\"");
  CHECK(got.counts.delivered == 1);
  CHECK(read_csv("1,2\n,4\n").failure
        == "in.csv, line 2, column 1: expected a number, got \"\"");
  CHECK(read_csv("1,2\n\n3,4,5\n").failure
        == "in.csv, line 3, column 3: expected 2 features, got 3");
  CHECK(read_csv("1,2\n3\n").failure
        == "in.csv, line 2, column 2: expected 2 features, got 1");
  CHECK_THROWS_WITH(read_csv("\n"), "in.csv: expected records, found none");
  CHECK_THROWS_WITH(read_csv("1,x\n"),
                    "in.csv, line 1, column 2: expected a number, got \"x\"; "
                    "--header leaves out a heading");
}

TEST_CASE("CSV: what is no number is shown in one short line of printable "
          "characters") {
  using namespace std::string_literals;
  auto shown = [](const std::string& text) {
    auto failure = read_csv("1\n" + text + "\n").failure;
    auto from = failure.find("got \"");
    REQUIRE(from != std::string::npos);
    return failure.substr(from + 4);
  };
  CHECK(shown("a \"b\\c~") == "\"a \"b\\c~\"");
  CHECK(shown("a\0\x1B[2J\x7F"s) == "\"a\\x00\\x1b[2J\\x7f\"");
  CHECK(shown("\xC3\xA4\xFF") == "\"\\xc3\\xa4\\xff\"");
  std::string beginning(60, 'x');
  CHECK(shown(beginning) == "\"" + beginning + "\"");
  CHECK(shown(beginning + "y") == "\"" + beginning + "...\"");
}

namespace {

/// An x after the other, without an end.
class endless : public std::streambuf {
protected:
  int_type underflow() override {
    setg(some_.data(), some_.data(), some_.data() + some_.size());
    return traits_type::to_int_type('x');
  }

private:
  std::string some_ = std::string(65536, 'x');
};

} // namespace

TEST_CASE("CSV: a line that does not end is refused before it takes all "
          "memory") {
  endless line;
  CHECK_THROWS_WITH(
      (csv_reader{std::make_unique<std::istream>(&line), "in.csv", false}),
      "in.csv, line 1: expected a line of at most 67108864 bytes");
}

TEST_CASE("CSV: input that begins as a file of IDX or of gzip is refused, "
          "whatever the policies") {
  using namespace std::string_literals;
  CHECK_THROWS_WITH(read_csv("\0\0\x08\x03\0\0\0\1"s, skip_all),
                    "in.csv: expected CSV, got IDX, which is read from a file "
                    "only");
  CHECK_THROWS_WITH(read_csv("\x1F\x8B\x08\n1,2\n", skip_all, true),
                    "in.csv: expected CSV or IDX, got a file compressed by "
                    "gzip; decompress it");
}

TEST_CASE("CSV: a number may have a plus, and the file a byte order mark") {
  auto got = read_csv("\xEF\xBB\xBF+1,2\n-3,+.5\n");
  CHECK(got.failure.empty());
  CHECK(got.records == rows{{1, 2}, {-3, 0.5F}});
  CHECK(!read_csv("1,2\n+-3,4\n").failure.empty());
}

TEST_CASE("CSV: what is too small for a float is next to 0, and what is too "
          "large is not finite") {
  auto got = read_csv("1e-50,-1e-400,1e-40\n1e39,-1e400,2\n",
                      {bad_record_policy::refuse, bad_record_policy::pass});
  CHECK(got.failure.empty());
  constexpr auto infinity = std::numeric_limits<float>::infinity();
  CHECK(got.records == rows{{0, 0, 1e-40F}, {infinity, -infinity, 2}});
  CHECK(read_csv("1,2\n3,1e39\n").failure
        == "in.csv, line 2, column 2: expected a finite number, got inf");
}

TEST_CASE("CSV: a stop before the first record is the end of an empty stream, "
          "not an error") {
  auto stop = std::make_shared<stop_signal>();
  stop->raise(stop_signal::reason::asked);
  csv_reader none{
      std::make_unique<std::istringstream>("1,2"), "in.csv", false, {}, stop};
  CHECK(none.features() == 0);
  CHECK(none.counts().delivered == 0);
}

TEST_CASE("CSV: a stop ends the wait for somebody to write a named pipe") {
  scratch_file pipe{"pipe"};
  REQUIRE(::mkfifo(pipe.name.c_str(), 0600) == 0);
  auto stop = std::make_shared<stop_signal>();
  std::thread user{[&] { stop->raise(stop_signal::reason::asked); }};
  auto none = open_records(pipe.name, 1, false, {}, stop);
  CHECK(none->features() == 0);
  user.join();
}

TEST_CASE("CSV: a named pipe that nobody has written to yet is waited for") {
  scratch_file pipe{"pipe"};
  REQUIRE(::mkfifo(pipe.name.c_str(), 0600) == 0);
  // Waits for the reader to open the other end, which does not wait for it.
  std::thread writer{[&] { std::ofstream{pipe.name} << "1,2\n3,4\n"; }};
  auto reader = open_records(pipe.name, 1, false);
  std::array<float, 2> row{};
  CHECK(reader->next(row));
  CHECK(reader->next(row));
  CHECK(row == std::array<float, 2>{3, 4});
  CHECK(!reader->next(row));
  writer.join();
}

TEST_CASE("CSV: a line before the first record that is none is refused as soon "
          "as it is there") {
  std::array<int, 2> ends{};
  REQUIRE(::pipe(ends.data()) == 0);
  // Whoever writes has more to say.
  REQUIRE(::write(ends[1], "foo\n", 4) == 4);
  CHECK_THROWS_WITH(
      open_records("/dev/fd/" + std::to_string(ends[0]), 1, false),
      ("/dev/fd/" + std::to_string(ends[0])
       + ", line 1, column 1: expected a number, got \"foo\"; --header "
         "leaves out a heading")
          .c_str());
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST_CASE("CSV: lines before the first record do not say how many features "
          "there are") {
  auto got = read_csv("begin\nx,y\n1,2,3\n4,5,6\n", skip_all);
  CHECK(got.failure.empty());
  CHECK(got.records == rows{{1, 2, 3}, {4, 5, 6}});
  CHECK(got.counts.skipped_malformed == 2);
  CHECK(got.counts.first_skipped
        == "in.csv, line 1, column 1: expected a number, got \"begin\"; "
           "--header leaves out a heading");
}

TEST_CASE("a reader that was stopped has no more records") {
  csv_reader reader{std::make_unique<std::istringstream>("1\n2\n3\n"), "in.csv",
                    false};
  std::array<float, 1> row{};
  CHECK(reader.next(row));
  reader.stop()->raise(stop_signal::reason::asked);
  CHECK(!reader.next(row));
  // The first reason stays.
  reader.stop()->raise(stop_signal::reason::failed);
  CHECK(reader.stop()->raised() == stop_signal::reason::asked);
}

TEST_CASE("options that the input's format has no use for are refused") {
  scratch_file input{"input"};
  std::ofstream{input.name} << "1,2\n";
  CHECK_THROWS_WITH(
      open_records(input.name, 2, false),
      (input.name + ": --repeat: expected a file of IDX, got CSV").c_str());
  CHECK_THROWS_WITH(open_records(digits, 1, true),
                    (digits + ": --header: expected CSV, got IDX").c_str());
}

TEST_CASE("records that are skipped are counted by what is wrong with them") {
  auto got = read_csv("1,2\nx,2\n3\nnan,4\n5,inf\n6,7\n", skip_all);
  CHECK(got.failure.empty());
  CHECK(got.records == rows{{1, 2}, {6, 7}});
  CHECK(got.counts.delivered == 2);
  CHECK(got.counts.skipped_malformed == 2);
  CHECK(got.counts.skipped_not_finite == 2);
  CHECK(got.counts.passed_not_finite == 0);
  CHECK(got.counts.first_skipped
        == "in.csv, line 2, column 1: expected a number, got \"x\"");
}

TEST_CASE("a NaN is refused, or passed on and counted, as the policy says") {
  CHECK(read_csv("1,2\n3,nan\n").failure
        == "in.csv, line 2, column 2: expected a finite number, got nan");
  auto got = read_csv("1,2\n3,nan\n",
                      {bad_record_policy::refuse, bad_record_policy::pass});
  CHECK(got.failure.empty());
  CHECK(got.counts.delivered == 2);
  CHECK(got.counts.passed_not_finite == 1);
  REQUIRE(got.records.size() == 2);
  CHECK(std::isnan(got.records[1][1]));
  CHECK_THROWS_WITH(parse_policy("nan", "drop", true),
                    "--nan: expected refuse, skip or pass, got \"drop\"");
  CHECK_THROWS_AS(parse_policy("bad-records", "pass", false),
                  std::invalid_argument);
}

TEST_CASE("IDX: every image of the bundled digits, as often as asked") {
  auto reader = open_records(digits, 2, false);
  CHECK(reader->features() == 64);
  auto got = read_all(*reader);
  CHECK(got.failure.empty());
  REQUIRE(got.records.size() == 2 * 360);
  CHECK(got.records[5] == got.records[365]);
  // The pixels as the file has them, behind 16 bytes of head.
  std::ifstream file{digits, std::ios::binary};
  std::string bytes{std::istreambuf_iterator<char>{file}, {}};
  for (std::size_t i = 0; i < 64; ++i)
    CHECK(got.records[359][i]
          == static_cast<float>(
              static_cast<unsigned char>(bytes[16 + 359 * 64 + i])));
}

namespace {

idx_reader open_bytes(const std::string& bytes) {
  return {std::make_unique<std::istringstream>(bytes), "x.idx", 1};
}

/// Of two images of two pixels.
const std::string idx_head{"\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\2", 16};

} // namespace

TEST_CASE("IDX: a file that is too short, or has no size, is refused") {
  using namespace std::string_literals;
  auto reader = open_bytes(idx_head + "ab" + "c");
  auto got = read_all(reader);
  CHECK(got.records == rows{{97, 98}});
  CHECK(got.failure == "x.idx: expected 2 images, the file ends in image 2");
  CHECK_THROWS_WITH(open_bytes(idx_head + "a"),
                    "x.idx: expected 2 images, the file ends in image 1");
  CHECK_THROWS_WITH(open_bytes(idx_head.substr(0, 12) + "\0\0\0\0"s),
                    "x.idx: expected images of 1 to 16384 rows and columns, "
                    "got 1 x 0");
  CHECK_THROWS_WITH(open_bytes(idx_head.substr(0, 12) + "\0\0\x40\1"s),
                    "x.idx: expected images of 1 to 16384 rows and columns, "
                    "got 1 x 16385");
  CHECK_THROWS_WITH(open_bytes(idx_head.substr(0, 12) + "\0\0\x40\0"s),
                    "x.idx: expected 2 images, the file ends in image 1");
  CHECK_THROWS_WITH(open_bytes(idx_head.substr(0, 15)),
                    "x.idx: expected a head of 16 bytes, the file ends in it");
  CHECK_THROWS_WITH(
      open_bytes(idx_head.substr(0, 7) + "\0"s + idx_head.substr(8)),
      "x.idx: expected images, found none");
  CHECK_THROWS_WITH(open_records("/nowhere", 1, false),
                    "/nowhere: cannot be opened: No such file or directory");
}

TEST_CASE("IDX: bytes behind the last image are refused, with their place") {
  auto reader = open_bytes(idx_head + "abcd");
  CHECK(read_all(reader).records == rows{{97, 98}, {99, 100}});
  CHECK_THROWS_WITH(open_bytes(idx_head + "abcdefg"),
                    "x.idx: offset 20: expected the end of the file, got 3 "
                    "more bytes");
}

TEST_CASE("a file of IDX with another type or number of dimensions, or one "
          "compressed by gzip, is refused as what it is") {
  scratch_file input{"input"};
  auto refuses = [&](const std::string& bytes, const std::string& problem) {
    std::ofstream{input.name} << bytes;
    // Neither is CSV, which could not be repeated.
    CHECK_THROWS_WITH(open_records(input.name, 2, false, skip_all),
                      (input.name + ": " + problem).c_str());
  };
  auto magic = "offset 0: expected 00 00 08 03 (bytes in 3 dimensions), got ";
  refuses({"\0\0\x08\x01\0\0\0\1\5", 9}, magic + std::string{"00 00 08 01"});
  refuses({"\0\0\x0D\x03", 4}, magic + std::string{"00 00 0d 03"});
  refuses({"\0\0", 2}, magic + std::string{"00 00"});
  refuses("\x1F\x8B\x08", "expected CSV or IDX, got a file compressed by gzip; "
                          "decompress it");
}

// -- saved statistics ---------------------------------------------------------

TEST_CASE("saved statistics come back with the same bits, and are refused "
          "whole if they do not fit") {
  scratch_file file{"state"};
  syncnorm::batch_norm_replica first{stream_options(2, true)};
  for (const auto& array : first.state())
    std::visit(
        [](auto values) {
          for (auto& x : values)
            x = static_cast<std::decay_t<decltype(x)>>(x == 0 ? 1e16 / 3
                                                              : 1.0 / 3);
        },
        array.values);
  save_state(file.name, first);
  CHECK(holds_online_state(file.name));
  syncnorm::batch_norm_replica second{stream_options(2, true)};
  load_state(file.name, second);
  CHECK(state_of(second) == state_of(first));

  syncnorm::batch_norm_replica wide{stream_options(3, true)};
  auto before = state_of(wide);
  CHECK_THROWS_WITH(load_state(file.name, wide),
                    (file.name
                     + ": running_mean: expected 3 elements, one a channel, "
                       "got 2")
                        .c_str());
  syncnorm::batch_norm_replica narrow{stream_options(1, true)};
  CHECK_THROWS_WITH(load_state(file.name, narrow),
                    (file.name
                     + ": running_mean: expected 1 elements, one a channel, "
                       "got 2")
                        .c_str());
  syncnorm::batch_norm_replica batchwise{stream_options(2, false)};
  CHECK_THROWS_WITH(load_state(file.name, batchwise),
                    (file.name
                     + ": has no array running_var: it was saved in another "
                       "mode")
                        .c_str());
  CHECK(state_of(wide) == before);
}

TEST_CASE("a damaged file of statistics is refused, wherever it is cut, and "
          "one that cannot be written leaves the old one") {
  scratch_file file{"state"};
  syncnorm::batch_norm_replica replica{stream_options(2, true)};
  save_state(file.name, replica);
  auto text = content(file.name);
  auto before = state_of(replica);
  for (std::size_t size = 0; size + 1 < text.size(); ++size) {
    std::ofstream{file.name} << text.substr(0, size);
    CHECK_THROWS_AS(load_state(file.name, replica), std::runtime_error);
  }
  auto at = text.find("0x");
  std::ofstream{file.name} << text.substr(0, at) << "oops"
                           << text.substr(text.find_first_of(" \n", at));
  CHECK_THROWS_AS(load_state(file.name, replica), std::runtime_error);
  auto with = [&](const std::string& name, const std::string& word,
                  const std::string& range) {
    auto line = text.find(name);
    auto first = text.find(' ', text.find(' ', line) + 1) + 1;
    auto damaged = text;
    damaged.replace(first, text.find_first_of(" \n", first) - first, word);
    std::ofstream{file.name} << damaged;
    CHECK_THROWS_WITH(load_state(file.name, replica),
                      (file.name + ": " + name + ": expected a number of 0 "
                       + range + ", got \"" + word + "\"")
                          .c_str());
  };
  with("num_elements_tracked", "99999999999999999999", "to 2^53");
  with("num_elements_tracked", "-1", "to 2^53");
  with("running_m2", "-0x1p-3", "or more");
  std::ofstream{file.name} << "syncnorm-state 1\nrunning_mean two 1 2\nend\n";
  CHECK_THROWS_WITH(load_state(file.name, replica),
                    (file.name
                     + ": damaged: expected an array, got \"running_mean two 1 "
                       "2\"")
                        .c_str());
  CHECK(state_of(replica) == before);
  CHECK_THROWS_AS(save_state("/nowhere/state", replica), std::runtime_error);
}

TEST_CASE("a saved state that cannot be read is refused by its cause") {
  syncnorm::batch_norm_replica replica{stream_options(2, true)};
  // A file, of which nothing can be read at its beginning.
  CHECK_THROWS_WITH(load_state("/proc/self/mem", replica),
                    "/proc/self/mem: cannot be read: Input/output error");
}

namespace {

/// Online statistics of two features, as text.
std::string online_state(const std::string& mean, const std::string& m2,
                         const std::string& elements,
                         const std::string& behind = "end\n") {
  auto batches = std::string{elements == "0" ? "0" : "2"};
  return "syncnorm-state 1\nrunning_mean 2 " + mean + "\nrunning_m2 2 " + m2
         + "\nnum_batches_tracked 1 " + batches + "\nnum_elements_tracked 1 "
         + elements + "\n" + behind;
}

void check_loads(const std::string& text, const std::string& problem) {
  scratch_file file{"state"};
  std::ofstream{file.name} << text;
  syncnorm::batch_norm_replica replica{stream_options(2, true)};
  std::string got;
  try {
    load_state(file.name, replica);
  } catch (const std::runtime_error& x) {
    got = x.what();
  }
  CHECK(got == (problem.empty() ? "" : file.name + ": " + problem));
}

} // namespace

TEST_CASE("a file that is no saved state is refused with what one begins with, "
          "and what it begins with itself") {
  auto expected =
      std::string{"expected a saved state, beginning \"syncnorm-state 1\", "};
  check_loads("", expected + "got \"\"");
  check_loads("\x1F\x8Bx\n", expected + "got \"\\x1f\\x8bx\"");
  scratch_file folder{"folder"};
  std::filesystem::create_directory(folder.name);
  CHECK_THROWS_WITH(
      holds_online_state(folder.name),
      (folder.name + ": expected a file, found something else").c_str());
}

TEST_CASE("a saved state that goes on behind its end is refused") {
  check_loads(online_state("1 2", "3 4", "5", "end\n\n"),
              "damaged: it goes on behind \"end\"");
  check_loads(online_state("1 2", "3 4", "5", "end\nrunning_mean 2 1 1\nend\n"),
              "damaged: it goes on behind \"end\"");
}

TEST_CASE("a saved state with something else than its mode's arrays, each "
          "once, is refused") {
  auto with = [](const std::string& line) {
    return online_state("1 2", "3 4", "5", line + "\nend\n");
  };
  check_loads(with(""), "damaged: expected an array, got \"\"");
  check_loads(with("running_mean 2 1 1"),
              "damaged: expected an array, got \"running_mean 2 1 1\"");
  check_loads(with("running_var 2 1 1"),
              "running_var: expected an array of this mode's");
}

TEST_CASE("a saved state of more batches than records, or of records without a "
          "batch, is refused") {
  check_loads(online_state("1 2", "3 4", "1"),
              "num_batches_tracked: expected 1 to 1, the number of elements, "
              "got 2");
  auto none = online_state("0 0", "0 0", "0");
  none.replace(none.find("num_elements_tracked 1 0"), 24,
               "num_elements_tracked 1 7");
  check_loads(none, "num_batches_tracked: expected 1 to 7, the number of "
                    "elements, got 0");
}

TEST_CASE("saving takes no other file's place and leaves none behind; the "
          "state keeps its permissions") {
  scratch_file folder{"folder"};
  std::filesystem::create_directory(folder.name);
  auto file = folder.name + "/state";
  auto other = file + '.' + std::to_string(::getpid()) + ".0";
  std::ofstream{file} << "old";
  std::ofstream{other} << "of somebody else";
  using std::filesystem::perms;
  auto only_ours = perms::owner_read | perms::owner_write;
  std::filesystem::permissions(file, only_ours);
  syncnorm::batch_norm_replica replica{stream_options(2, true)};
  save_state(file, replica);
  CHECK(content(file).starts_with("syncnorm-state"));
  CHECK(content(other) == "of somebody else");
  CHECK(std::filesystem::status(file).permissions() == only_ours);
  CHECK(std::distance(std::filesystem::directory_iterator{folder.name}, {})
        == 2);
  std::filesystem::remove_all(folder.name);
}

TEST_CASE("a number of a saved state that is none is shown in printable "
          "characters") {
  check_loads(online_state("1 \x1B", "3 4", "5"),
              "running_mean: expected a number, got \"\\x1b\"");
}

TEST_CASE("a saved mean is finite where M2 is: a NaN that was passed on stays, "
          "in the mean alone it is damage") {
  check_loads(online_state("1 nan", "3 nan", "5"), "");
  check_loads(online_state("1 inf", "3 -nan", "5"), "");
  check_loads(online_state("1 nan", "3 4", "5"),
              "running_mean: expected a finite number in place 2, where "
              "running_m2 has one, got nan");
  check_loads(online_state("-inf 2", "3 4", "5"),
              "running_mean: expected a finite number in place 1, where "
              "running_m2 has one, got -inf");
  check_loads(online_state("1 2", "3 inf", "5"), "");
  check_loads(online_state("1 2", "3 -4", "5"),
              "running_m2: expected a number of 0 or more, got \"-4\"");
}

TEST_CASE("a saved mean lies in the range of the records") {
  check_loads(online_state("3e38 2", "3 4", "5"), "");
  check_loads(online_state("1 -1e300", "3 4", "5"),
              "running_mean: expected a number in the range of float32 in "
              "place 2, got -1e+300");
}

TEST_CASE("saved statistics of batches are in the range of float32, and a "
          "variance is not negative") {
  auto loads = [](const std::string& mean, const std::string& var) {
    scratch_file file{"state"};
    std::ofstream{file.name} << "syncnorm-state 1\nrunning_mean 2 1 " << mean
                             << "\nrunning_var 2 " << var
                             << " 1\nnum_batches_tracked 1 1\nend\n";
    syncnorm::batch_norm_replica replica{stream_options(2, false)};
    try {
      load_state(file.name, replica);
    } catch (const std::runtime_error& x) {
      return std::string{x.what()}.substr(file.name.size());
    }
    return std::string{};
  };
  CHECK(loads("3e38", "0").empty());
  CHECK(loads("inf", "nan").empty());
  CHECK(loads("1e300", "0")
        == ": running_mean: expected numbers in the range of float32, got "
           "\"1e300\"");
  CHECK(loads("1", "-1")
        == ": running_var: expected a number of 0 or more, got \"-1\"");
}

TEST_CASE("a saved counter is one that can count on") {
  check_loads(online_state("1 2", "3 4", "9007199254740992"), "");
  check_loads(online_state("1 2", "3 4", "9007199254740993"),
              "num_elements_tracked: expected a number of 0 to 2^53, got "
              "\"9007199254740993\"");
}

TEST_CASE("a saved state of no elements has no statistics") {
  check_loads(online_state("0 0", "0 0", "0"), "");
  check_loads(online_state("0 1", "0 0", "0"),
              "num_elements_tracked: expected 1 or more, for running_mean is "
              "not 0, got 0");
  check_loads(online_state("0 0", "0 1", "0"),
              "num_elements_tracked: expected 1 or more, for running_m2 is not "
              "0, got 0");
}
