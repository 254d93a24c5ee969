// Runs over a slow network that loses packets, and over one of which a part is
// cut. Exits with 77
// where no network namespaces can be made: ctest reports that as Skipped.

#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>
#include <fmt/format.h>

#include "trainer/child_process.hpp"
#include "trainer/scratch_folder.hpp"
#include "trainer/virtual_hosts.hpp"

#include "trainer/output/metrics_file.hpp"

#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

using namespace syncnorm::train;

namespace {

using arguments = std::vector<std::string>;
using child = std::unique_ptr<child_process>;

child start(arguments options, const arguments& more) {
  options.insert(options.begin(), SYNCNORM_TRAIN);
  options.insert(options.end(), more.begin(), more.end());
  return std::make_unique<child_process>(options);
}

std::vector<double> losses_of(const std::filesystem::path& file) {
  std::vector<double> result;
  for (const auto& row : read_metrics(file))
    if (!row.is_epoch())
      result.push_back(row.loss);
  return result;
}

/// Waits for the end with an error that contains `text`.
void require_failure(child_process& process, const std::string& text) {
  auto status = process.finish();
  INFO(process.output());
  REQUIRE(status == 1);
  REQUIRE(contains(process.output(), text));
}

} // namespace

TEST_CASE("over a network with a delay of 5 ms that loses one packet in a "
          "hundred, training goes on bit for bit; cut, it ends on both sides, "
          "with a checkpoint") {
  using namespace std::chrono_literals;
  scratch_folder folder;
  virtual_hosts hosts{{5ms, 0.01}};
  const arguments options{"--model=mlp", "--precision=f64", "--deadline=3",
                          "--patience=20", "--epochs=99"};
  child first;
  hosts.on(0, [&] {
    first = start(options, {"--serve=" + hosts.address(0) + ":0", "--workers=1",
                            "--insecure", "--devices=cpu",
                            "--metrics=" + (folder / "far.csv").string(),
                            "--checkpoint=" + folder.path().string()});
  });
  auto line = first->line_that_begins("serving at ");
  auto where = line.substr(11, line.find(": waiting") - 11);
  REQUIRE(where.starts_with(hosts.address(0)));
  child other;
  hosts.on(1, [&] {
    other = start(options, {"--join=" + where, "--insecure", "--devices=cpu"});
  });
  REQUIRE(first->wait_for("epoch  2/99"));
  CHECK(hosts.delivered() > 500);
  CHECK(hosts.lost() > 0);
  hosts.cut(0, 1);
  require_failure(*first, "; stopped after step ");
  require_failure(*other, "the serving process is gone");
  CHECK(std::filesystem::exists(folder / "checkpoint.pt"));

  // The same without a network.
  auto near = start(options, {"--devices=cpu*2",
                              "--metrics=" + (folder / "near.csv").string()});
  REQUIRE(near->wait_for("epoch  5/99"));
  CHECK(near->kill(SIGINT) == 0);
  auto found = losses_of(folder / "far.csv");
  auto expected = losses_of(folder / "near.csv");
  REQUIRE(found.size() >= 46);
  REQUIRE(found.size() <= expected.size());
  expected.resize(found.size());
  CHECK(found == expected);
}

TEST_CASE(
    "a process that reaches the one that serves, but not the one above it "
    "in the tree any more, ends the run for all by an error that says so") {
  scratch_folder folder;
  virtual_hosts hosts{{}, 3};
  const arguments options{"--model=mlp",   "--deadline=2", "--patience=20",
                          "--epochs=9999", "--insecure",   "--devices=cpu",
                          "--fan-in=2"};
  child first;
  hosts.on(0, [&] {
    first = start(options, {"--serve=" + hosts.address(0) + ":0", "--workers=3",
                            "--checkpoint=" + folder.path().string()});
  });
  auto line = first->line_that_begins("serving at ");
  auto where = line.substr(11, line.find(": waiting") - 11);
  // The last one has the third above it.
  std::vector<child> others;
  for (int host : {0, 1, 2}) {
    hosts.on(host,
             [&] { others.push_back(start(options, {"--join=" + where})); });
    REQUIRE(others.back()->wait_for("joined"));
  }
  REQUIRE(first->wait_for("epoch"));
  hosts.cut(1, 2);
  auto why = fmt::format("does not reach {}:", hosts.address(1));
  auto who = fmt::format(":{}, 1 replica) {}", others[2]->id(), why);
  require_failure(*first, who);
  CHECK(contains(first->output(), "; stopped after step "));
  for (auto& other : others)
    require_failure(*other, why);
  CHECK(std::filesystem::exists(folder / "checkpoint.pt"));
}

TEST_CASE("a process that never reaches the one above it in the tree ends the "
          "run by an error that says why once") {
  virtual_hosts hosts{{}, 3};
  const arguments options{"--model=mlp",   "--deadline=2", "--patience=20",
                          "--epochs=9999", "--insecure",   "--devices=cpu",
                          "--fan-in=2"};
  child first;
  hosts.on(0, [&] {
    first =
        start(options, {"--serve=" + hosts.address(0) + ":0", "--workers=3"});
  });
  auto line = first->line_that_begins("serving at ");
  auto where = line.substr(11, line.find(": waiting") - 11);
  hosts.cut(1, 2);
  std::vector<child> others;
  for (int host : {0, 1, 2}) {
    hosts.on(host,
             [&] { others.push_back(start(options, {"--join=" + where})); });
    REQUIRE(others.back()->wait_for("joined"));
  }
  auto why = fmt::format("does not reach {}:", hosts.address(1));
  require_failure(*first,
                  fmt::format(":{}, 1 replica) {}", others[2]->id(), why));
  auto told = first->output();
  CHECK(told.find(why) == told.rfind(why));
}

int main(int argc, char** argv) {
  try {
    virtual_hosts{{}};
  } catch (const std::exception& reason) {
    std::printf("skipped: no hosts can be made here: %s\n", reason.what());
    return 77;
  }
  return doctest::Context{argc, argv}.run();
}
