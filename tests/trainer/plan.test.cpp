#include "trainer/plan/devices.hpp"
#include "trainer/plan/endpoint.hpp"
#include "trainer/plan/epoch_order.hpp"
#include "trainer/plan/launch.hpp"
#include "trainer/plan/process_tree.hpp"
#include "trainer/plan/run_identity.hpp"
#include "trainer/plan/schedule.hpp"
#include "trainer/plan/settings.hpp"
#include "trainer/plan/sgd.hpp"
#include "trainer/run/this_machine.hpp"

#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>
#include <thread>

using namespace syncnorm::train;

namespace {

std::vector<std::uint32_t> order_of(std::size_t n, std::uint64_t seed,
                                    std::uint64_t epoch) {
  epoch_order order{n, seed, epoch};
  auto all = order.range(0, n);
  return {all.begin(), all.end()};
}

} // namespace

TEST_CASE("an epoch shows every sample once") {
  auto order = order_of(1437, 1, 0);
  std::ranges::sort(order);
  std::vector<std::uint32_t> expected(1437);
  std::iota(expected.begin(), expected.end(), 0U);
  CHECK(order == expected);
}

TEST_CASE("the order follows from seed and epoch, and differs between them") {
  CHECK(order_of(100, 1, 2) == order_of(100, 1, 2));
  CHECK(order_of(100, 1, 2) != order_of(100, 1, 3));
  CHECK(order_of(100, 1, 2) != order_of(100, 2, 2));
}

TEST_CASE("random numbers are even below a bound, however great that is") {
  constexpr int rounds = 10000;
  constexpr auto third = std::uint64_t{1} << 62;
  random_stream random{1, 2};
  std::array<int, 3> below{};
  std::array<int, 4> uniform{};
  for (int i = 0; i < rounds; ++i) {
    below.at(random.below(3 * third) / third) += 1;
    uniform.at(static_cast<std::size_t>(4 * random.uniform())) += 1;
  }
  // More than five standard deviations of a count.
  for (auto count : below)
    CHECK(std::abs(count - rounds / 3) < 5 * 48);
  for (auto count : uniform)
    CHECK(std::abs(count - rounds / 4) < 5 * 48);
}

TEST_CASE("all permutations are equally likely") {
  std::array<int, 6> counts{};
  constexpr int rounds = 60000;
  for (int i = 0; i < rounds; ++i) {
    auto order = order_of(3, 5, static_cast<std::uint64_t>(i));
    counts.at(order[0] * 2 + (order[1] > order[2] ? 1 : 0)) += 1;
  }
  // Five standard deviations of a count: sqrt(60000 * 1/6 * 5/6) = 91.
  for (auto count : counts)
    CHECK(std::abs(count - rounds / 6) < 5 * 91);
}

TEST_CASE("shards cover a batch without gap and differ by one at most") {
  for (std::size_t size : {0U, 1U, 3U, 29U, 64U})
    for (std::size_t replicas : {1U, 2U, 4U, 7U}) {
      position_range whole{100, 100 + size};
      auto at = whole.begin;
      for (std::size_t i = 0; i < replicas; ++i) {
        auto part = shard_of(whole, replicas, i);
        CHECK(part.begin == at);
        CHECK(part.size() >= size / replicas);
        CHECK(part.size() <= size / replicas + 1);
        at = part.end;
      }
      CHECK(at == whole.end);
    }
}

TEST_CASE("a schedule starts at the full rate and falls as it says") {
  using enum schedule_kind;
  CHECK(learning_rate(constant, 0.3, 99, 100) == 0.3);
  CHECK(learning_rate(cosine, 0.3, 0, 100) == doctest::Approx(0.3));
  CHECK(learning_rate(cosine, 0.3, 50, 100) == doctest::Approx(0.15));
  CHECK(learning_rate(cosine, 0.3, 100, 100) == doctest::Approx(0.0));
  CHECK(learning_rate(step, 0.3, 49, 100) == 0.3);
  CHECK(learning_rate(step, 0.3, 50, 100) == doctest::Approx(0.03));
  CHECK(learning_rate(step, 0.3, 75, 100) == doctest::Approx(0.003));
}

TEST_CASE("gradient descent follows torch.optim.SGD") {
  // The values of torch.optim.SGD(lr=0.1, momentum=0.9, weight_decay=0.01) for
  // a weight of 1 with the gradients 0.5 and -0.25, worked out by hand:
  // v = 0.51, w = 0.949; v = 0.9 * 0.51 - 0.25 + 0.00949, w = 0.949 - 0.1 * v.
  std::array<double, 1> weight{1.0};
  std::array<double, 1> velocity{0.0};
  sgd_settings settings{0.1, 0.9, 0.01};
  std::array<double, 1> gradient{0.5};
  sgd_step<double>(settings, weight, velocity, gradient);
  CHECK(weight[0] == doctest::Approx(0.949).epsilon(1e-14));
  gradient[0] = -0.25;
  sgd_step<double>(settings, weight, velocity, gradient);
  CHECK(velocity[0] == doctest::Approx(0.21849).epsilon(1e-14));
  CHECK(weight[0] == doctest::Approx(0.927151).epsilon(1e-14));
}

TEST_CASE("device lists are read, with copies") {
  CHECK(list_devices(parse_devices("cpu*4")) == "cpu:0, cpu:1, cpu:2, cpu:3");
  CHECK(list_devices(parse_devices("cuda:0,cuda:1")) == "cuda:0, cuda:1");
  CHECK(list_devices(parse_devices("cpu,cuda:0")) == "cpu:0, cuda:0");
  CHECK(list_devices(parse_devices("cuda*2,cpu")) == "cuda:0, cuda:0, cpu:0");
  CHECK(list_devices(parse_devices("cpu:0,cpu:1")) == "cpu:0, cpu:1");
}

TEST_CASE("a device list that makes no sense is refused by its item") {
  for (const auto* text : {"", "cpu,", "tpu", "cpu*0", "cpu*", "cpu*x", "*4",
                           "cpu*99999", "cuda:-1", "cpu *2"}) {
    CAPTURE(text);
    CHECK(contains(message_of([&] { (void) parse_devices(text); }),
                   "--devices: expected"));
  }
  CHECK(message_of([] { (void) parse_devices("cpu,cpu:7"); })
        == "--devices: expected cpu or cpu:1 as CPU number 1, found \"cpu:7\"");
  CHECK(contains(message_of([] { (void) parse_devices("cpu,tpu:1"); }),
                 "found \"tpu:1\""));
  CHECK(parse_devices("cpu*1024").size() == 1024);
  CHECK(message_of([] { (void) parse_devices("cpu*1025"); })
        == "--devices: expected at most 1024 replicas, found \"cpu*1025\"");
  CHECK(message_of([] { (void) parse_devices("cpu*1024,cpu"); })
        == "--devices: expected at most 1024 replicas, found 1025");
}

TEST_CASE("without a device list every GPU is used, else up to four cores") {
  CHECK(list_devices(default_devices(2, 16)) == "cuda:0, cuda:1");
  CHECK(list_devices(default_devices(0, 16)) == "cpu:0, cpu:1, cpu:2, cpu:3");
  CHECK(list_devices(default_devices(0, 2)) == "cpu:0, cpu:1");
  CHECK(list_devices(default_devices(0, 0)) == "cpu:0");
}

TEST_CASE("what a launcher starts takes the GPU of its number, the only one "
          "that it sees, or one core") {
  auto of = [](std::size_t gpus, std::int64_t number) {
    return list_devices({launched_device(gpus, number)});
  };
  CHECK(of(4, 2) == "cuda:2");
  CHECK(of(1, 0) == "cuda:0");
  CHECK(of(1, 3) == "cuda:0");
  CHECK(of(0, 3) == "cpu:0");
}

TEST_CASE("as many replicas as cores have a core each; fewer or more have the "
          "system choose") {
  using cores = std::vector<int>;
  CHECK(choose_cores(4, {0, 1, 2, 3}) == cores{0, 1, 2, 3});
  CHECK(choose_cores(2, {5, 7}) == cores{5, 7});
  CHECK(choose_cores(3, {0, 1, 2, 3}).empty());
  CHECK(choose_cores(5, {0, 1, 2, 3}).empty());
  CHECK(choose_cores(1, {0}).empty());
}

TEST_CASE("a thread that stays on a core may use no other") {
  auto all = usable_cores();
  REQUIRE_FALSE(all.empty());
  std::vector<int> left;
  std::thread{[&] {
    stay_on({all.back()});
    left = usable_cores();
  }}.join();
  CHECK(left == std::vector{all.back()});
  CHECK(usable_cores() == all);
}

TEST_CASE("options are read by name, and unknown names are refused") {
  CHECK(parse_model("resnet") == model_kind::resnet);
  CHECK(parse_norm(to_string(norm_kind::frozen)) == norm_kind::frozen);
  CHECK(parse_precision("bf16") == precision_kind::bf16);
  CHECK(message_of([] { (void) parse_model("vgg"); })
        == "--model: expected mlp, cnn, resnet, found \"vgg\"");
}

TEST_CASE("options out of range are refused by name") {
  auto message = [](auto change) {
    settings options;
    change(options);
    return message_of([&] { options.validate(); });
  };
  CHECK(message([](settings&) {}) == "nothing was thrown");
  CHECK(contains(message([](auto& x) { x.batch = 0; }), "--batch: "));
  CHECK(contains(message([](auto& x) { x.epochs = 0; }), "--epochs: "));
  CHECK(contains(message([](auto& x) { x.rate = -1; }), "--lr: "));
  CHECK(contains(message([](auto& x) { x.momentum = 1; }), "--momentum: "));
  CHECK(contains(message([](auto& x) { x.resume = true; }), "--resume: "));
  CHECK(contains(message([](auto& x) { x.every = 5; }), "--every: "));
  CHECK(contains(message([](auto& x) { x.epochs = 1'000'000'001; }),
                 "--epochs: expected 1 to 1000000000, found 1000000001"));
  for (auto infinite : {INFINITY, NAN}) {
    CHECK(contains(message([&](auto& x) { x.rate = infinite; }), "--lr: "));
    CHECK(contains(message([&](auto& x) { x.weight_decay = infinite; }),
                   "--weight-decay: "));
  }
  CHECK(contains(message([](auto& x) { x.weight_decay = -1; }),
                 "--weight-decay: "));
  CHECK(contains(message([](auto& x) { x.momentum = -0.5; }), "--momentum: "));
  for (auto seconds : {0.09, 86401.0})
    CHECK(contains(message([&](auto& x) { x.deadline = seconds; }),
                   "--deadline: expected 0.1 to 86400 seconds"));
  for (auto seconds : {-1.0, 86401.0})
    CHECK(contains(message([&](auto& x) { x.patience = seconds; }),
                   "--patience: expected 0 to 86400 seconds"));
  CHECK(contains(message([](auto& x) { x.shift = 16385; }), "--shift: "));
  CHECK(contains(message([](auto& x) { x.fan_in = 1; }), "--fan-in: "));
  for (std::size_t kib : {0U, 1048577U})
    CHECK(contains(message([&](auto& x) { x.chunk = kib; }), "--chunk: "));
}

TEST_CASE("the least and the greatest of each option are taken") {
  settings least;
  least.batch = 1;
  least.epochs = 1;
  least.rate = least.momentum = least.weight_decay = least.patience = 0;
  least.deadline = 0.1;
  least.shift = 0;
  least.fan_in = 2;
  least.chunk = 1;
  CHECK(message_of([&] { least.validate(); }) == "nothing was thrown");
  settings greatest;
  greatest.epochs = 1'000'000'000;
  greatest.deadline = greatest.patience = 86400;
  greatest.shift = 16384;
  greatest.chunk = 1048576;
  CHECK(message_of([&] { greatest.validate(); }) == "nothing was thrown");
}

TEST_CASE("options that do not go together are refused by name") {
  auto message = [](auto change) {
    settings options;
    change(options);
    return message_of([&] { options.validate(); });
  };
  CHECK(message([](auto& x) { x.eval = x.serve = "a:1"; })
        == "--eval, --serve: expected one of them, found both");
  CHECK(message([](auto& x) { x.eval = x.join = "a:1"; })
        == "--eval, --join: expected one of them, found both");
  CHECK(message([](auto& x) { x.serve = x.join = "a:1"; })
        == "--serve, --join: expected one of them, found both");
  CHECK(message([](auto& x) { x.workers = 1; })
        == "--workers: expected --serve=HOST:PORT, found none");
  CHECK(message([](auto& x) { x.serve = "a:1"; })
        == "--serve: expected --workers=N, 1 or more, found none");
  for (auto missing :
       {&settings::tls_certificate, &settings::tls_key, &settings::tls_ca})
    CHECK(message([&](auto& x) {
            x.tls_certificate = x.tls_key = x.tls_ca = "file";
            (x.*missing).clear();
          })
          == "--tls-certificate, --tls-key, --tls-ca: expected all three, or "
             "none");
  CHECK(message([](auto& x) {
          x.tls_certificate = x.tls_key = x.tls_ca = "file";
          x.insecure = true;
        })
        == "--insecure, --tls-certificate: expected one of them, found both");
  // Who joins writes nothing, and may have the command line of all.
  CHECK(message([](auto& x) {
          x.join = "a:1";
          x.every = 5;
        })
        == "nothing was thrown");
}

namespace {

using variables = std::map<std::string, std::string>;

std::optional<launch> launch_of(const variables& all) {
  return find_launch([&](const char* name) -> const char* {
    auto found = all.find(name);
    return found == all.end() ? nullptr : found->second.c_str();
  });
}

/// `"serve ADDRESS 3"` or `"join ADDRESS"`.
std::string role_of(const variables& all) {
  auto found = launch_of(all);
  if (!found)
    return "alone";
  settings options;
  apply(*found, options);
  return options.serve.empty()
             ? "join " + options.join
             : "serve " + options.serve + " " + std::to_string(options.workers);
}

} // namespace

TEST_CASE("launchers' variables say who serves and who joins") {
  using namespace std::string_literals;
  CHECK(role_of({}) == "alone");
  CHECK(role_of({{"WORLD_SIZE", "1"}}) == "alone");
  CHECK(role_of({{"WORLD_SIZE", "1"}, {"RANK", "0"}}) == "alone");
  variables torch{{"WORLD_SIZE", "4"},
                  {"RANK", "0"},
                  {"MASTER_ADDR", "node1"},
                  {"MASTER_PORT", "4242"}};
  CHECK(role_of(torch) == "serve node1:4242 3");
  CHECK(launch_of(torch)->host_variable == "MASTER_ADDR"s);
  torch["RANK"] = "3";
  torch["LOCAL_RANK"] = "1";
  CHECK(role_of(torch) == "join node1:4242");
  torch["TORCHELASTIC_USE_AGENT_STORE"] = "True";
  CHECK(role_of(torch) == "join node1:4243");
  CHECK(launch_of(torch)->local_rank == 1);
  CHECK(launch_of(torch)->rank == 3);
  settings third;
  apply(*launch_of(torch), third);
  CHECK(third.rank == 3);
  CHECK(third.local_rank == 1);
  torch["MASTER_PORT"] = "65535";
  CHECK(role_of(torch) == "join node1:65534");
  torch["TORCHELASTIC_USE_AGENT_STORE"] = "False";
  CHECK(role_of(torch) == "join node1:65535");
  CHECK(role_of({{"OMPI_COMM_WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}})
        == "join 127.0.0.1:29400");
  variables slurm{{"SLURM_STEP_NUM_TASKS", "2"}, {"SLURM_PROCID", "1"}};
  CHECK(role_of(slurm) == "join 127.0.0.1:29400");
  CHECK(launch_of(slurm)->host_variable == nullptr);
  for (const auto& [list, node] : variables{{"gpu7", "gpu7"},
                                            {"a1,a2", "a1"},
                                            {"n[07,9-12],m3", "n07"},
                                            {"n[3-5]", "n3"},
                                            {"r[1-2]n[01-04]", "r1n01"},
                                            {"n[1-3]-ib,m2", "n1-ib"},
                                            {"n[1", "n1"},
                                            {"n[", "n"},
                                            {"m3,n[3-5]", "m3"}}) {
    slurm["SLURM_STEP_NODELIST"] = list;
    CHECK(role_of(slurm) == "join " + node + ":29400");
    CHECK(launch_of(slurm)->host_variable == "SLURM_STEP_NODELIST"s);
  }
  variables mpich{{"PMI_SIZE", "3"}, {"PMI_RANK", "2"}};
  CHECK(role_of(mpich) == "join 127.0.0.1:29400");
  mpich["MPI_LOCALRANKID"] = "1";
  CHECK(launch_of(mpich)->local_rank == 1);
  // Its own launcher may be started by Slurm, once a node.
  mpich["SLURM_STEP_NUM_TASKS"] = "2";
  mpich["SLURM_PROCID"] = "0";
  CHECK(launch_of(mpich)->rank == 2);
  // But what Slurm itself starts has MPICH's numbers without that.
  mpich.erase("MPI_LOCALRANKID");
  mpich["SLURM_LOCALID"] = "1";
  CHECK(role_of(mpich) == "serve 127.0.0.1:29400 1");
  // Others, beside a variable that is no launcher's.
  CHECK(role_of({{"WORLD_SIZE", "4"}, {"PMI_SIZE", "2"}, {"PMI_RANK", "1"}})
        == "join 127.0.0.1:29400");
  // One that is left from something else hides no launcher.
  CHECK(role_of({{"WORLD_SIZE", "1"},
                 {"RANK", "0"},
                 {"OMPI_COMM_WORLD_SIZE", "2"},
                 {"OMPI_COMM_WORLD_RANK", "1"}})
        == "join 127.0.0.1:29400");
  // Others' are not set by hand: such a launcher has started one process.
  CHECK(role_of({{"OMPI_COMM_WORLD_SIZE", "1"},
                 {"OMPI_COMM_WORLD_RANK", "0"},
                 {"SLURM_STEP_NUM_TASKS", "2"},
                 {"SLURM_PROCID", "1"}})
        == "alone");
  // Slurm's nodes are those of what Slurm started.
  CHECK(role_of({{"OMPI_COMM_WORLD_SIZE", "2"},
                 {"OMPI_COMM_WORLD_RANK", "1"},
                 {"SLURM_STEP_NODELIST", "n[3-5]"}})
        == "join 127.0.0.1:29400");
  // A job's script is one process, whatever the job has.
  CHECK(role_of({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}}) == "alone");
}

TEST_CASE("launchers' variables that are missing or no numbers are refused by "
          "name") {
  auto message = [](const variables& all) {
    return message_of([&] { (void) launch_of(all); });
  };
  CHECK(message({{"MASTER_ADDR", "a"}, {"WORLD_SIZE", "2"}})
        == "RANK: expected a number from 0 to 1, found none");
  CHECK(message({{"PMI_SIZE", "4"}})
        == "PMI_RANK: expected a number from 0 to 3, found none");
  CHECK(message({{"WORLD_SIZE", "2"}, {"RANK", "2"}})
        == "RANK: expected a number from 0 to 1, found \"2\"");
  CHECK(message({{"WORLD_SIZE", "two"}, {"RANK", "0"}})
        == "WORLD_SIZE: expected a number from 1 to 100000, found \"two\"");
  CHECK(message({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_PORT", "0"}})
        == "MASTER_PORT: expected a number from 1 to 65535, found \"0\"");
  CHECK(message({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"LOCAL_RANK", "-1"}})
        == "LOCAL_RANK: expected a number from 0 to 1, found \"-1\"");
  for (const std::string host :
       {"127.0.0.1:4242", "a b", "[::1]:4242", "[x", "a:b:c", "foo/bar"})
    CHECK(message({{"WORLD_SIZE", "2"}, {"RANK", "0"}, {"MASTER_ADDR", host}})
          == "MASTER_ADDR: expected the name or address of a host, without a "
             "port, found \""
                 + host + "\"");
  for (const std::string list : {"", "[", ","})
    CHECK(message({{"SLURM_STEP_NUM_TASKS", "2"},
                   {"SLURM_PROCID", "0"},
                   {"SLURM_STEP_NODELIST", list}})
          == "SLURM_STEP_NODELIST: expected the name or address of a host, "
             "without a port, found \""
                 + list + "\"");
}

TEST_CASE("an IPv6 address of a launcher's variable may stand in brackets") {
  for (const std::string host : {"::1", "[::1]"})
    CHECK(role_of({{"WORLD_SIZE", "2"}, {"RANK", "1"}, {"MASTER_ADDR", host}})
          == "join [::1]:29400");
}

TEST_CASE("a launcher's variable that is empty is as if it were not there") {
  CHECK(role_of({{"WORLD_SIZE", "2"},
                 {"RANK", "1"},
                 {"MASTER_ADDR", ""},
                 {"MASTER_PORT", ""}})
        == "join 127.0.0.1:29400");
}

TEST_CASE("who is started by a launcher does not say how many processes there "
          "are") {
  for (const std::string rank : {"0", "1"}) {
    settings options;
    options.workers = 3;
    auto found = launch_of({{"WORLD_SIZE", "2"}, {"RANK", rank}});
    CHECK(message_of([&] { apply(*found, options); })
          == "--workers: expected none under a launcher, which started 2 "
             "processes, found 3");
  }
}

TEST_CASE("every option of the training, the model, the data, and the versions "
          "stand in what a worker must agree with") {
  labelled_images images{{1, 2, 2}, std::vector<std::uint8_t>(8), {0, 1}};
  auto data = *make_dataset(images, images);
  settings mine;
  auto expected = run_identity(mine, data, 7);
  CHECK_FALSE(difference_of(expected, run_identity(mine, data, 7)));
  auto differs = [&](const std::string& name, const std::string& found) {
    auto text = difference_of(expected, found);
    REQUIRE(text);
    CHECK(text->starts_with("expected " + name + "="));
    CHECK(text->find(", found " + name + "=") != std::string::npos);
  };
  auto with = [&](auto change) {
    auto other = mine;
    change(other);
    return run_identity(other, data, 7);
  };
  differs("model", with([](auto& x) { x.model = model_kind::mlp; }));
  differs("norm", with([](auto& x) { x.norm = norm_kind::local; }));
  differs("precision",
          with([](auto& x) { x.precision = precision_kind::f64; }));
  differs("batch", with([](auto& x) { x.batch = 5; }));
  differs("lr", with([](auto& x) { x.rate = 0.25; }));
  differs("momentum", with([](auto& x) { x.momentum = 0.5; }));
  differs("weight-decay", with([](auto& x) { x.weight_decay = 0.5; }));
  differs("epochs", with([](auto& x) { x.epochs = 3; }));
  differs("seed", with([](auto& x) { x.seed = 5; }));
  differs("shift", with([](auto& x) { x.shift = 3; }));
  differs("schedule",
          with([](auto& x) { x.schedule = schedule_kind::constant; }));
  differs("chunk", with([](auto& x) { x.chunk = 3; }));
  differs("fingerprint of the model", run_identity(mine, data, 8));
  auto others = images;
  others.labels[1] = 2;
  differs("data", run_identity(mine, *make_dataset(others, images), 7));
  differs("data", run_identity(mine, *make_dataset(images, others), 7));
  for (const std::string name : {"syncnorm", "caf"}) {
    auto other = expected;
    other[other.find(name) + name.size() + 1] = 'x';
    differs(name, other);
  }
}

TEST_CASE("all options in which a worker differs are named, each up to 80 "
          "characters, and of something else altogether the first line") {
  CHECK(difference_of("a=1\nb=2\nc=3\n", "a=2\nb=2\nc=4\n")
        == "expected a=1, found a=2; expected c=3, found c=4");
  CHECK(difference_of("a=1\nb=2\n", "x=1\ny=2\n") == "expected a=1, found x=1");
  CHECK(difference_of("a=1\n", "a=" + std::string(100, '2') + "\n")
        == "expected a=1, found a=" + std::string(78, '2'));
}

TEST_CASE("an address comes back as it was written") {
  for (const auto* text :
       {"localhost:1", "10.0.0.1:65535", "[::1]:2", "[fe80::1%eth0]:3"})
    CHECK(to_string(parse_endpoint("join", text)) == text);
  CHECK(to_string(parse_endpoint("serve", "[::1]:0")) == "[::1]:0");
}

TEST_CASE("brackets around what is no IPv6 address, and ports that nobody can "
          "join, are refused with what was expected") {
  auto message = [](const std::string& text) {
    return message_of([&] { (void) parse_endpoint("join", text); });
  };
  for (const auto* text : {"[localhost]:1", "[127.0.0.1]:1", "[]:1", "[::1%]:1",
                           "[%eth0]:1", "[::g]:1", "::1:1"}) {
    CAPTURE(text);
    CHECK(contains(message(text), "--join: expected an IPv6 address in "
                                  "brackets, [ADDRESS]:PORT, found"));
  }
  for (const auto* text :
       {"a:0", "a:65536", "a:-1", "a:", "a:x", "a:1x", "[::1]:0"}) {
    CAPTURE(text);
    CHECK(contains(message(text), "--join: expected a port from 1 to 65535"));
  }
  for (const auto* text : {"a", ":1", "a b:1", "a/b:1", "a\x7f:1"}) {
    CAPTURE(text);
    CHECK(contains(message(text), "--join: expected HOST:PORT, found"));
  }
}

namespace {

/// How many messages of a round the relay at `at`, or the masters, take in from
/// other processes.
std::int64_t messages_to(const process_tree& tree,
                         std::optional<std::size_t> at) {
  auto home = at ? tree.relays[*at].process : std::size_t{0};
  auto from_relays = std::ranges::count_if(tree.relays, [&](const auto& x) {
    return x.parent == at && x.process != home;
  });
  std::int64_t from_replicas = 0;
  for (std::size_t i = 0; i < tree.followed.size(); ++i)
    from_replicas += i != home && tree.followed[i] == at ? 1 : 0;
  return from_relays + from_replicas;
}

/// Of whom the relay at `at` waits for messages: counts each replica.
std::vector<int> replicas_below(const process_tree& tree,
                                std::span<const std::size_t> counts,
                                std::size_t at) {
  std::vector<int> result(std::accumulate(counts.begin(), counts.end(), 0UL));
  std::size_t first = 0;
  for (std::size_t i = 0; i < counts.size(); first += counts[i++])
    if (tree.followed[i] == at)
      for (std::size_t j = 0; j < counts[i]; ++j)
        ++result[first + j];
  for (const auto& x : tree.relays)
    if (x.parent == at)
      for (std::int64_t j = 0; j < x.range.count; ++j)
        ++result[static_cast<std::size_t>(x.range.first + j)];
  return result;
}

} // namespace

TEST_CASE("up to the fan-in processes are next to the masters, one message a "
          "process") {
  std::array<std::size_t, 4> counts{3, 1, 2, 4};
  auto tree = plan_process_tree(counts, 4);
  REQUIRE(tree.relays.size() == 2);
  CHECK(tree.relays[0].process == 2);
  CHECK(tree.relays[0].range == syncnorm::replica_range{4, 2});
  CHECK(tree.relays[1].process == 3);
  CHECK(tree.relays[1].range == syncnorm::replica_range{6, 4});
  for (const auto& x : tree.relays)
    CHECK_FALSE(x.parent);
  CHECK_FALSE(tree.followed[1]);
  for (std::size_t i = 0; i < 4; ++i)
    CHECK_FALSE(tree.above(i));
}

TEST_CASE("above it they form a tree, in which every replica is waited for "
          "once, and nobody takes in more messages than about the fan-in") {
  for (std::size_t processes : {5U, 6U, 7U, 16U, 17U, 33U, 100U})
    for (std::int64_t fan_in : {2, 3, 4, 16}) {
      CAPTURE(processes);
      CAPTURE(fan_in);
      std::vector<std::size_t> counts;
      for (std::size_t i = 0; i < processes; ++i)
        counts.push_back(1 + i * i % 3);
      auto tree = plan_process_tree(counts, fan_in);
      CHECK(messages_to(tree, std::nullopt) <= fan_in);
      for (std::size_t i = 0; i < tree.relays.size(); ++i) {
        const auto& x = tree.relays[i];
        CHECK(messages_to(tree, i) <= fan_in);
        CHECK((!x.parent || *x.parent < i));
        CHECK(x.depth == (x.parent ? tree.relays[*x.parent].depth + 1 : 0));
        CHECK((!x.parent || tree.relays[*x.parent].range != x.range));
        auto below = replicas_below(tree, counts, i);
        for (std::size_t j = 0; j < below.size(); ++j) {
          auto at = static_cast<std::int64_t>(j) - x.range.first;
          CHECK(below[j] == (at >= 0 && at < x.range.count ? 1 : 0));
        }
      }
      for (std::size_t i = 1; i < processes; ++i)
        CHECK(tree.above(i).value_or(0) < i);
    }
}

TEST_CASE("five processes with a fan-in of 2: the second one of each pair is "
          "below the first, and both pairs' is below process 1") {
  std::array<std::size_t, 5> counts{1, 1, 1, 1, 1};
  auto tree = plan_process_tree(counts, 2);
  REQUIRE(tree.relays.size() == 3);
  CHECK(tree.relays[0].range == syncnorm::replica_range{1, 3});
  CHECK(tree.relays[1].range == syncnorm::replica_range{2, 2});
  CHECK(tree.relays[1].process == 2);
  // It learns at once when process 2 is lost.
  CHECK(tree.relays[2].range == syncnorm::replica_range{3, 1});
  CHECK(tree.relays[2].process == 3);
  std::array<std::optional<std::size_t>, 5> above{std::nullopt, std::nullopt, 1,
                                                  2, std::nullopt};
  for (std::size_t i = 0; i < 5; ++i)
    CHECK(tree.above(i) == above[i]);
}

TEST_CASE("the address by which a host is reached is this machine's own") {
  CHECK(address_towards("127.0.0.1") == "127.0.0.1");
  CHECK(address_towards("localhost") == "127.0.0.1");
  CHECK(address_towards("nobody.invalid").empty());
}
