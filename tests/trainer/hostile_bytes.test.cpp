#include "tests/fuzz/trainer.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <random>
#include <string>
#include <vector>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

using content = std::vector<std::byte>;

content bytes_of(const std::string& text) {
  auto bytes = std::as_bytes(std::span{text});
  return {bytes.begin(), bytes.end()};
}

/// `first`, before which its size stands, then `second`.
content two_parts(const std::string& first, const std::string& second) {
  return bytes_of(static_cast<char>(first.size()) + first + second);
}

std::string idx(std::initializer_list<char> sizes, std::string values) {
  std::string result{0, 0, 8, static_cast<char>(sizes.size())};
  for (auto size : sizes)
    result += std::string{0, 0, 0, size};
  return result + std::move(values);
}

std::string metrics_text() {
  metrics_row epoch;
  epoch.epoch = 1;
  epoch.loss = 0.1;
  epoch.held_out_loss = 1.0 / 3;
  epoch.held_out_accuracy = 0.9;
  return std::string{metrics_header} + '\n' + to_csv({}) + '\n' + to_csv(epoch)
         + '\n';
}

std::string sealed(std::string archive) {
  seal(archive);
  return archive;
}

/// What each kind looks like, after the byte that names the kind.
std::vector<content> good_inputs(caf::actor_system& system) {
  lineup leader;
  leader.layers.resize(1);
  leader.layers[0].path = "norm1";
  leader.gradients.resize(1);
  application app{"host:1", 2, "model=cnn\n", {}};
  app.replicas.resize(1);
  std::vector<process_entry> roll{{1, "host:1", 2, "is gone", {}}};
  std::vector<gradient_part> parts(3);
  parts[0] = {0.5, flat_array{std::vector{1.0F, 2.0F}}};
  parts[2] = {0.5, flat_array{std::vector{3.0, 4.0}}, true, 0.1};
  run_state state;
  state.model = "cnn";
  state.loss = 0.1;
  gradient_sum sum{1, flat_array{std::vector{1.0, 2.0}}};
  model_state model;
  model.fingerprint = 7;
  model.weights = flat_array{std::vector{1.0F, 2.0F, 3.0F}};
  model.velocity = flat_array{std::vector{4.0F, 5.0F, 6.0F}};
  model.statistics = flat_array{std::vector{0.5F, 1.5F}};
  model.batches = {8};
  std::vector<content> result{
      test::serialize(step_plan{1, 2, 64, 128, 0.1}),
      test::serialize(step_report{1, true, true, 2, 3, 4}),
      test::serialize(parts[0]),
      test::serialize(sum),
      test::serialize(evaluation{10, 9, 0.5}),
      test::serialize(leader, &system),
      test::serialize(app, &system),
      test::serialize(roll, &system),
      test::serialize(parts),
      two_parts(idx({2}, {3, 9}), idx({2, 2, 3}, "twelve bytes")),
      bytes_of(std::string(1, 7) + std::string(3072, 'x')),
      bytes_of(metrics_text()),
      bytes_of(to_text(state)),
      bytes_of(sealed("an archive and more bytes than a comment has at all")),
      bytes_of("cpu*4,cuda:1"),
      bytes_of("WORLD_SIZE=4\nRANK=1\nLOCAL_RANK=1\nMASTER_ADDR=::1\n"),
      two_parts("batch=64\nseed=1\n", "batch=64\nseed=2\n"),
      test::serialize(app, &system),
      test::serialize(model),
  };
  for (std::size_t i = 0; i < result.size(); ++i)
    result[i].insert(result[i].begin(), std::byte(i));
  return result;
}

} // namespace

TEST_CASE("what a message or a file was read as is written as the same, whole "
          "or cut or changed") {
  caf::actor_system system{configuration()};
  std::mt19937 random{7};
  for (const auto& good : good_inputs(system)) {
    CAPTURE(std::to_integer<int>(good[0]));
    REQUIRE(fuzz::read_trainer(good, system));
    for (std::size_t n = 0; n < good.size(); n += 1 + good.size() / 200)
      REQUIRE(fuzz::read_trainer(std::span{good}.first(n), system));
    for (int trial = 0; trial < 300; ++trial) {
      auto bad = good;
      for (auto n = random() % 4 + 1; n-- > 0;)
        bad[1 + random() % (bad.size() - 1)] = std::byte(random());
      REQUIRE(fuzz::read_trainer(bad, system));
    }
  }
}

#if SYNCNORM_CAF_LEGACY
// As the fuzzer's CAF writes them.
TEST_CASE("the trainer's corpus has a good input of each kind") {
  caf::actor_system system{configuration()};
  auto inputs = good_inputs(system);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    auto name = fmt::format("{}/kind_{:02}", SYNCNORM_FUZZ_CORPUS, i);
    std::string good{reinterpret_cast<const char*>(inputs[i].data()),
                     inputs[i].size()};
    if (std::getenv("SYNCNORM_WRITE_CORPUS") != nullptr)
      write_bytes(name, {good.begin(), good.end()});
    CHECK_MESSAGE(read_text(name) == good, name,
                  " is another input; SYNCNORM_WRITE_CORPUS=1 writes it anew");
  }
}
#endif

TEST_CASE("every input of the trainer's corpus is read or refused") {
  caf::actor_system system{configuration()};
  auto n = 0;
  for (const auto& file :
       std::filesystem::directory_iterator{SYNCNORM_FUZZ_CORPUS}) {
    auto text = read_text(file.path());
    CHECK_MESSAGE(fuzz::read_trainer(std::as_bytes(std::span{text}), system),
                  file.path().string());
    ++n;
  }
  CHECK(n > 18);
}
