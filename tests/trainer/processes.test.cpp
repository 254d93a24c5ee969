// Runs of several processes on this machine.

#include "trainer/other_digits.hpp"
#include "trainer/run_processes.hpp"
#include "trainer/stranger.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <random>
#include <thread>

using namespace syncnorm::train;

TEST_CASE("two processes with two replicas, and four with one, follow one with "
          "four bit for bit over 200 steps, and one replica to 1e-9") {
  auto options = small + arguments{"--precision=f64", "--epochs=9"};
  auto whole = run(1, "cpu*4", options);
  CHECK(is_same(run(2, "cpu*2", options), whole));
  CHECK(is_same(run(4, "cpu", options), whole));
  auto alone = run(1, "cpu", options);
  REQUIRE(whole.losses.size() >= 200);
  REQUIRE(alone.losses.size() == whole.losses.size());
  // Other sums, float64; the losses fall by a factor of a hundred.
  for (std::size_t i = 0; i < whole.losses.size(); ++i)
    REQUIRE(std::abs(whole.losses[i] - alone.losses[i])
            <= 1e-9 * alone.losses[i]);
}

TEST_CASE(
    "gradients in chunks, more than are on their way at a time, change no "
    "bit between two processes") {
  auto options = small + arguments{"--epochs=1"};
  const arguments chunks{"--chunk=1"};
  auto whole = run(1, "cpu*4", options);
  CHECK(is_same(run(2, "cpu*2", options + chunks), whole));
}

TEST_CASE("above the fan-in processes form a tree, which changes no bit: five "
          "processes with a replica each, and four with two") {
  auto options = small + arguments{"--epochs=1"};
  const arguments tree{"--fan-in=2"};
  auto whole = run(1, "cpu*5", options);
  auto five = run(5, "cpu", options + tree);
  CHECK(is_same(five, whole));
  // The tree is there: without it there are five, as the next test says.
  CHECK(contains(five.said, "\n3 messages a round and layer"));
  auto four = run(4, "cpu*2", options + tree);
  CHECK(is_same(four, run(1, "cpu*8", options)));
  CHECK(contains(four.said, "\n4 messages a round and layer"));
}

TEST_CASE("up to the fan-in one message a process, and one for each replica of "
          "the one that serves, come to that") {
  auto options = small + arguments{"--epochs=1"};
  CHECK(
      contains(run(5, "cpu", options).said, "\n5 messages a round and layer"));
  CHECK(contains(run(2, "cpu*2", options).said,
                 "\n3 messages a round and layer"));
}

TEST_CASE(
    "a worker that would train something else is refused on its side, and "
    "the run goes on") {
  auto options = small + arguments{"--epochs=2", "--devices=cpu"};
  auto first = serve(options, 1);
  auto refused = [&](const arguments& more, const std::string& text) {
    auto other = join(first.where, options + more);
    CHECK(other->finish() == 1);
    CHECK(contains(other->output(), text));
  };
  refused({"--batch=32"}, "expected batch=64, found batch=32");
  refused({"--precision=f64"}, "expected precision=f32, found precision=f64");
  refused({"--model=cnn"}, "expected model=mlp, found model=cnn; expected "
                           "fingerprint of the model=");
  scratch_folder folder;
  make_other_digits(folder / "data");
  refused({"--data=" + (folder / "data").string()},
          "expected data=1437 + 360 images of 1 x 8 x 8, ");
  auto good = join(first.where, options);
  require_good_end(*first.process);
  require_good_end(*good);
}

TEST_CASE("one worker too many is refused by name") {
  auto options = small + arguments{"--devices=cpu", "--epochs=30"};
  auto first = serve(options, 1);
  auto good = join(first.where, options);
  REQUIRE(good->line_that_begins("joined ").ends_with("with cpu:0\n"));
  auto extra = join(first.where, options);
  CHECK(extra->finish() == 1);
  CHECK(
      contains(extra->output(), "expected 1 process to join, and it is there"));
  require_good_end(*first.process);
  require_good_end(*good);
}

TEST_CASE(
    "a process whose number and host are those of the one that serves, as "
    "of a container, is told so") {
  // Both are the first process of their containers.
  child_process both{
      {"/bin/sh", "-c",
       "c='unshare -Urpf --mount-proc --kill-child'; "
       "$c true 2>/dev/null || exit 77; "
       "port=$((20000 + $$ % 10000)); options='--model=mlp --devices=cpu'; "
       "$c \"$0\" $options --serve=127.0.0.1:$port --workers=1 >/dev/null & "
       "$c \"$0\" $options --join=127.0.0.1:$port; status=$?; "
       "kill %1; exit $status",
       SYNCNORM_TRAIN}};
  auto status = both.finish();
  INFO(both.output());
  if (status == 77) {
    MESSAGE("skipped: this machine makes no namespaces for us");
    return;
  }
  CHECK(status == 1);
  CHECK(contains(both.output(), "expected another process, got one of this "
                                "one's host and number"));
}

TEST_CASE("addresses that are none, are taken or do not answer are one line") {
  auto refused = [&](const arguments& options, const std::string& text) {
    auto process = start(small + options);
    CHECK(process->finish() == 1);
    CHECK(contains(process->output(), text));
  };
  refused({"--join=nowhere"}, "--join: expected HOST:PORT, found \"nowhere\"");
  refused({"--join=localhost:70000"},
          "--join: expected a port from 1 to 65535");
  refused({"--join=localhost:0"}, "--join: expected a port from 1 to 65535");
  refused({"--serve=localhost:65536", "--workers=1"},
          "--serve: expected a port from 0 to 65535");
  refused({"--join=::1:4242"}, "--join: expected an IPv6 address in brackets");
  refused({"--join=192.0.2.1:4242"}, "or --insecure, found 192.0.2.1");
  refused({"--serve=0.0.0.0:4242", "--workers=1"},
          "or --insecure, found 0.0.0.0");
  // A name, not an address of this machine.
  refused({"--serve=127.example.org:0", "--workers=1"},
          "or --insecure, found 127.example.org");
  refused({"--serve=192.0.2.1:4242", "--workers=1", "--insecure"},
          "--serve: 192.0.2.1:4242 cannot be had: ");
  refused({"--join=nobody.invalid:4242", "--insecure", "--patience=0.2"},
          "--join: nobody.invalid:4242 did not answer for 0.2 s: the name "
          "nobody.invalid could not be resolved");
  refused({"--join=127.0.0.1:1", "--patience=0.2"},
          "--join: 127.0.0.1:1 did not answer for 0.2 s");
  refused({"--serve=127.0.0.1:0", "--workers=1", "--patience=0.2"},
          "--serve: 0 of 1 processes have joined within 0.2 s");
  refused({"--serve=127.0.0.1:0"}, "--serve: expected --workers=N");
  refused({"--serve=127.0.0.1:0", "--workers=3", "--fan-in=1"},
          "--fan-in: expected 2 or more, found 1");
  refused({"--join=127.0.0.1:1", "--listen=192.0.2.1:0"},
          "--listen: expected a loopback address");
  refused({"--workers=2"}, "--workers: expected --serve=HOST:PORT");
  auto first = serve(small + arguments{"--devices=cpu"}, 1);
  refused({"--serve=" + first.where, "--workers=1"}, " cannot be had: ");
  CHECK(first.process->kill(SIGINT) == 1);
  CHECK(contains(first.process->output(), "0 of 1 processes have joined; "
                                          "stopped"));
}

TEST_CASE(
    "a worker that is killed, stopped or leaves ends the run for all, who "
    "learn its name, with a checkpoint of the last whole step") {
  for (auto number : {SIGKILL, SIGSTOP, SIGINT}) {
    CAPTURE(number);
    scratch_folder folder;
    running_trio trio{endless
                      + arguments{"--checkpoint=" + folder.path().string()}};
    trio.goes->signal(number);
    require_failure(*trio.first.process, trio.name);
    CHECK(contains(trio.first.process->output(), "; stopped after step "));
    require_failure(*trio.stays, trio.name);
    trio.goes->signal(SIGCONT);
    CHECK(trio.goes->finish()
          == (number == SIGKILL  ? 128 + SIGKILL
              : number == SIGINT ? 0
                                 : 1));
    auto again = start(small
                       + arguments{"--epochs=9999", "--resume",
                                   "--checkpoint=" + folder.path().string()});
    REQUIRE(again->wait_for("epoch"));
    CHECK(again->kill(SIGINT) == 0);
  }
}

TEST_CASE("workers of a server that is killed or stopped say so, and end") {
  for (auto number : {SIGKILL, SIGSTOP}) {
    running_trio trio{endless};
    trio.first.process->signal(number);
    require_failure(*trio.stays, "the serving process is gone");
    require_failure(*trio.goes, "the serving process is gone");
    trio.first.process->kill(SIGKILL);
  }
}

namespace {

/// Whoever takes part, the losses are the same.
const arguments exact{"--model=mlp",   "--precision=f64", "--schedule=constant",
                      "--devices=cpu", "--deadline=2",    "--patience=20"};

const arguments endless_run =
    exact + arguments{"--epochs=9999", "--on-failure=continue"};

/// The losses of such a run in `folder` are those of one process.
void require_losses_of_one(const scratch_folder& folder) {
  auto found = read_trace(folder).losses;
  auto epochs = fmt::format("--epochs={}", found.size() / 23 + 1);
  auto whole = run(1, "cpu", exact + arguments{epochs}).losses;
  REQUIRE(found.size() <= whole.size());
  // Other sums in float64, which training amplifies.
  for (std::size_t i = 0; i < found.size(); ++i)
    REQUIRE(std::abs(found[i] - whole[i]) <= 1e-6 * whole[i]);
}

} // namespace

TEST_CASE("with --on-failure=continue a run goes on without a lost process, "
          "exactly, and takes a new one in") {
  scratch_folder folder;
  auto first = serve(endless_run + traced(folder), 2);
  auto one = join(first.where, endless_run);
  auto two = join(first.where, endless_run);
  REQUIRE(first.process->wait_for("epoch"));
  one->kill(SIGKILL);
  REQUIRE(first.process->wait_for("after step"));
  auto three = join(first.where, endless_run);
  REQUIRE(
      contains(first.process->line_that_begins("after step"), "has joined"));
  two->signal(SIGINT);
  CHECK(two->finish() == 0);
  CHECK(contains(two->output(), "left the run"));
  REQUIRE(contains(first.process->line_that_begins("after step"), "has left"));
  REQUIRE(first.process->wait_for("epoch"));
  CHECK(first.process->kill(SIGINT) == 0);
  require_good_end(*three);
  require_losses_of_one(folder);
}

TEST_CASE("a worker that is started anew under the number of the one that was "
          "lost, as in a container, takes part again") {
  const std::string own_numbers =
      "c='unshare -Urpf --mount-proc --kill-child'; "
      "$c true 2>/dev/null || exit 77; exec $c \"$0\" \"$@\"";
  auto join_as_first = [&](const std::string& where) {
    return std::make_unique<child_process>(
        arguments{"/bin/sh", "-c", own_numbers, SYNCNORM_TRAIN,
                  "--join=" + where}
        + endless_run);
  };
  auto first = serve(endless_run, 1);
  auto one = join_as_first(first.where);
  if (!one->wait_for("joined")) {
    CHECK(one->finish() == 77);
    MESSAGE("skipped: this machine makes no namespaces for us");
    return;
  }
  REQUIRE(first.process->wait_for("epoch"));
  one->kill(SIGKILL);
  REQUIRE(contains(first.process->line_that_begins("after step"), "is gone"));
  auto two = join_as_first(first.where);
  REQUIRE(
      contains(first.process->line_that_begins("after step"), "has joined"));
  auto next = first.process->line_that_begins("epoch");
  CHECK(next.starts_with("epoch"));
  CHECK_FALSE(contains(first.process->output(), "does not answer"));
  CHECK(first.process->kill(SIGINT) == 0);
  require_good_end(*two);
}

TEST_CASE("a resumed run with --on-failure=continue goes on without a process "
          "that is lost before its first step") {
  scratch_folder folder;
  auto options =
      endless_run + arguments{"--checkpoint=" + folder.path().string()};
  auto before = start(options);
  REQUIRE(before->wait_for("epoch"));
  CHECK(before->kill(SIGINT) == 0);
  auto first = serve(options + arguments{"--resume"}, 2);
  auto one = join(first.where, endless_run);
  REQUIRE(!one->line_that_begins("joined ").empty());
  one->signal(SIGSTOP);
  auto two = join(first.where, endless_run);
  REQUIRE(
      contains(first.process->line_that_begins("after step"), "process 1 ("));
  REQUIRE(first.process->wait_for("epoch"));
  CHECK(first.process->kill(SIGINT) == 0);
  require_good_end(*two);
}

namespace {

/// Joins as soon as the place of a process that is lost is free again.
child join_freed_place(const std::string& where) {
  for (auto i = 0; i < 20; ++i)
    if (auto one = join(where, endless_run); one->wait_for("joined"))
      return one;
  FAIL("no place is free");
  return nullptr;
}

/// Reads on until the process that serves has taken one in.
bool takes_in_one(child_process& server) {
  for (auto i = 0; i < 50; ++i)
    if (contains(server.line_that_begins("after step"), "has joined"))
      return true;
  return false;
}

} // namespace

TEST_CASE("a process that joins a run and leaves or is killed at once, about "
          "when it would take its first step, disturbs nobody") {
  scratch_folder folder;
  running_trio trio{endless_run + traced(folder)};
  auto& server = *trio.first.process;
  auto& goes = trio.goes;
  goes->kill(SIGKILL);
  auto join_and_end = [&](int number, bool is_taken_in) {
    goes = join_freed_place(trio.first.where);
    if (is_taken_in)
      REQUIRE(takes_in_one(server));
    auto status = goes->kill(number);
    INFO(goes->output());
    CHECK(status == (number == SIGINT ? 0 : 128 + SIGKILL));
  };
  for (auto is_taken_in : {true, false})
    for (auto number : {SIGKILL, SIGINT, SIGKILL, SIGKILL})
      join_and_end(number, is_taken_in);
  REQUIRE(server.wait_for("epoch"));
  CHECK(server.kill(SIGINT) == 0);
  INFO(server.output());
  require_good_end(*trio.stays);
  require_losses_of_one(folder);
}

namespace {

/// A run of five processes that form a tree: the first one serves, the second
/// takes in what the third sends, and the third what the fourth does.
struct running_tree {
  std::vector<child> others;
  server first;

  explicit running_tree(const arguments& options)
      : first{serve(options + shape, 4)} {
    for (int i = 0; i < 4; ++i)
      join_one(options);
    auto runs = first.process->wait_for("epoch");
    INFO(first.process->output());
    REQUIRE(runs);
  }

  /// Joins one more, as the last in the order of the tree.
  void join_one(const arguments& options) {
    auto& one = others.emplace_back(join(first.where, options + shape));
    REQUIRE(one->wait_for("joined"));
  }

  inline static const arguments shape{"--fan-in=2", "--devices=cpu"};
};

} // namespace

TEST_CASE("a process in the middle of the tree that is killed or stopped ends "
          "the run for all, who learn its name") {
  for (auto number : {SIGKILL, SIGSTOP}) {
    CAPTURE(number);
    running_tree tree{endless};
    auto& middle = *tree.others[1];
    auto name = fmt::format(":{}, 1 replica) ", middle.id());
    middle.signal(number);
    require_failure(*tree.first.process, name);
    for (std::size_t i : {0U, 2U, 3U})
      require_failure(*tree.others[i], name);
    middle.kill(SIGKILL);
  }
}

TEST_CASE("an address of --listen that cannot be had ends the run for all, by "
          "the name of its process") {
  auto first = serve(small + running_tree::shape, 3);
  // Two groups of two: one of these has another process below it.
  std::vector<child> others;
  auto taken = "--listen=" + first.where;
  for (int i = 0; i < 3; ++i)
    others.push_back(
        join(first.where, small + running_tree::shape + arguments{taken}));
  auto text = fmt::format("--listen: {} cannot be had: ", first.where);
  require_failure(*first.process, text);
  auto is_named = [&](const child& x) {
    return contains(first.process->output(),
                    fmt::format(":{}: {}", x->id(), text));
  };
  CHECK(std::ranges::count_if(others, is_named) == 1);
  for (auto& x : others)
    require_failure(*x, text);
}

TEST_CASE("with --on-failure=continue those who are left form another tree, "
          "exactly, and one that joins again has a place in it") {
  scratch_folder folder;
  // Nobody waits for a process that is gone.
  running_tree tree{endless_run + traced(folder)
                    + arguments{"--deadline=3000"}};
  tree.others[0]->kill(SIGKILL);
  REQUIRE(tree.first.process->wait_for("after step"));
  tree.join_one(endless_run);
  REQUIRE(tree.first.process->wait_for("after step"));
  tree.others[1]->kill(SIGKILL);
  REQUIRE(tree.first.process->wait_for("after step"));
  REQUIRE(tree.first.process->wait_for("epoch"));
  CHECK(tree.first.process->kill(SIGINT) == 0);
  for (std::size_t i : {2U, 3U, 4U})
    require_good_end(*tree.others[i]);
  require_losses_of_one(folder);
}

namespace {

/// What a launcher would start.
child launched(int rank, std::uint16_t port, const arguments& options) {
  return std::make_unique<child_process>(
      arguments{"/usr/bin/env", "WORLD_SIZE=3", fmt::format("RANK={}", rank),
                "MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port),
                SYNCNORM_TRAIN}
      + options);
}

} // namespace

TEST_CASE("garbage and half messages on the port disturb nobody, and are "
          "refused by name") {
  auto options = small + arguments{"--epochs=3", "--devices=cpu"};
  auto first = serve(options, 1);
  auto before = disturb(port_of(first.where));
  auto other = join(first.where, options);
  // Unlike wait_for, this keeps the lines before.
  REQUIRE(first.process->line_that_begins("mlp, ").starts_with("mlp, "));
  auto during = disturb(port_of(first.where));
  require_good_end(*first.process);
  require_good_end(*other);
  CHECK(contains(first.process->output(),
                 "127.0.0.1 is refused: what it sent is no message of CAF's"));
}

TEST_CASE("a server that takes the connection and says nothing is given up") {
  stranger silent{0};
  auto process = join(fmt::format("127.0.0.1:{}", silent.port()),
                      {"--patience=0.2", "--model=mlp"});
  require_failure(*process, "did not answer for 0.2 s");
}

TEST_CASE("a worker that leaves before the run has begun is answered at once, "
          "and its place is free") {
  auto options = small + arguments{"--epochs=1", "--devices=cpu"};
  auto first = serve(options, 2);
  auto goes = join(first.where, options);
  REQUIRE(goes->wait_for("joined"));
  goes->signal(SIGTERM);
  require_good_end(*goes);
  CHECK(contains(goes->output(), "left the run"));
  auto one = join(first.where, options);
  auto two = join(first.where, options);
  for (auto* process : {&first.process, &one, &two})
    require_good_end(**process);
}

TEST_CASE("a worker that has joined learns why the run ends before the others "
          "have come") {
  const arguments options{"--model=mlp", "--devices=cpu"};
  auto first = serve(options, 2);
  auto other = join(first.where, options);
  REQUIRE(other->wait_for("joined"));
  first.process->signal(SIGINT);
  const std::string why = "1 of 2 processes have joined; stopped";
  require_failure(*first.process, "--serve: " + why);
  require_failure(*other, why);
  // Not its own option.
  CHECK_FALSE(contains(other->output(), "--serve"));
}

TEST_CASE("Ctrl-C ends a worker that waits for an answer") {
  stranger silent{0};
  auto process = join(fmt::format("127.0.0.1:{}", silent.port()),
                      small + arguments{"--devices=cpu"});
  silent.accept();
  process->signal(SIGINT);
  require_failure(*process, "stopped before it answered");
}

TEST_CASE(
    "one Ctrl-C of which a process is told twice, as below a launcher, ends "
    "it after the step under way; another one, later, at once") {
  auto program = start(endless);
  REQUIRE(program->wait_for("epoch"));
  program->signal(SIGINT);
  CHECK(program->kill(SIGTERM) == 0);
  CHECK(contains(program->output(), "stopped after step "));
  running_trio trio{endless + arguments{"--deadline=60"}};
  trio.goes->signal(SIGSTOP);
  // The step does not end: only another request ends the process.
  while (!trio.first.process->has_ended())
    trio.first.process->signal(SIGINT);
  CHECK(trio.first.process->finish() == 128 + SIGINT);
}

TEST_CASE(
    "one command line started several times by a launcher is one run, and "
    "a rank that comes twice is refused by name") {
  auto options = small + arguments{"--epochs=20"};
  auto port = stranger{0}.port();
  auto two = launched(2, port, options);
  auto first = launched(0, port, options);
  REQUIRE(two->wait_for("joined"));
  auto again = launched(2, port, options);
  require_failure(*again, "rank 2 has joined already: ");
  auto one = launched(1, port, options);
  REQUIRE(
      contains(first->line_that_begins("mlp"), "3 replicas in 3 processes"));
  for (auto* process : {&first, &one, &two})
    require_good_end(**process);
}

TEST_CASE("whoever is killed, whenever: all others end, and the run that is "
          "resumed reaches the same weights") {
  auto options = small
                 + arguments{"--devices=cpu", "--epochs=6", "--every=5",
                             "--precision=f64"};
  auto expected = run(2, "cpu", options).checkpoint;
  const auto* given = std::getenv("SYNCNORM_TEST_KILLS");
  auto kills = given != nullptr ? std::atoi(given) : 20;
  std::mt19937 random{static_cast<unsigned>(kills)};
  for (int i = 0; i < kills; ++i) {
    scratch_folder folder;
    const arguments hurry{"--patience=2"};
    auto first = serve(options + hurry + traced(folder), 1);
    auto other = join(first.where, options + hurry);
    auto delay = std::uniform_int_distribution{0, 400}(random);
    auto& victim = random() % 2 == 0 ? first.process : other;
    CAPTURE(i);
    CAPTURE(delay);
    // One in four is killed while the processes come together.
    if (i % 4 != 0)
      (void) first.process->wait_for("mlp, ");
    // A random moment is what is tested.
    std::this_thread::sleep_for(std::chrono::milliseconds{delay});
    victim->signal(SIGKILL);
    auto status = first.process->finish();
    INFO(first.process->output());
    auto other_status = other->finish();
    INFO(other->output());
    CHECK((status == 0 || status == 1 || status == 128 + SIGKILL));
    CHECK((other_status == 0 || other_status == 1
           || other_status == 128 + SIGKILL));
    auto rest = options + traced(folder) + arguments{"--devices=cpu*2"};
    if (std::filesystem::exists(folder / "checkpoint.pt"))
      rest.push_back("--resume");
    require_good_end(*start(rest));
    REQUIRE(read_text(folder / "checkpoint.pt") == expected);
  }
}

namespace {

/// `run_several` of two processes of a program that knows no signals yet, in a
/// shell that first runs `commands`.
child start_unprepared(const scratch_folder& folder,
                       const std::string& commands = {}) {
  auto program = folder / "program";
  // A shell would note the signal and look after it too late, if it is about to
  // wait.
  std::ofstream{program} << "#!/usr/bin/perl\n"
                            "$| = 1;\n"
                            "print \"started\\n\" if $ENV{RANK} == 0;\n"
                            "sleep 20;\n"
                            "print STDERR \"$ENV{RANK} stayed\\n\";\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  // A shell cannot trap what is ignored when it starts.
  return std::make_unique<child_process>(
      arguments{"/usr/bin/env", "--default-signal", "bash", "-euo", "pipefail",
                "-c", commands + ". \"$0\"; run_several 2 \"$@\"",
                SYNCNORM_SCRIPTS "/processes.sh", program});
}

} // namespace

TEST_CASE("scripts/train.sh: Ctrl-C ends all processes of a machine, also "
          "before the program waits for it") {
  for (auto number : {SIGINT, SIGTERM, SIGHUP}) {
    CAPTURE(number);
    scratch_folder folder;
    auto script = start_unprepared(folder);
    REQUIRE(script->wait_for("started"));
    CHECK(script->kill(number) == 128 + SIGTERM);
    CHECK_FALSE(contains(script->output(), "stayed"));
  }
}

TEST_CASE(
    "scripts/train.sh: its status is the first process's, also where that "
    "ends before the shell looks after it") {
  scratch_folder folder;
  // Looks until the process is gone.
  auto script = start_unprepared(folder, R"(kill() {
    builtin kill "$@" 2>/dev/null || return
    while [[ $1 == -0 ]] && builtin kill -0 "$2" 2>/dev/null; do :; done
    [[ $1 != -0 ]]
  }
  )");
  REQUIRE(script->wait_for("started"));
  CHECK(script->kill(SIGINT) == 128 + SIGTERM);
}
