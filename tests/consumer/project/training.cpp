// Two copies of a layer as slave actors, forward and backward, then in
// evaluation: docs/pipeline.md goes through it.

#include <syncnorm/batch_norm_stage.hpp>
#include <syncnorm/caf_error.hpp>

#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;

namespace {

void require(bool good) {
  if (!good)
    std::exit(EXIT_FAILURE);
}

shared_tensor make_tensor(std::vector<double> values) {
  auto memory = std::make_shared<std::vector<double>>(std::move(values));
  std::array sizes{std::int64_t(memory->size()), std::int64_t{1}};
  auto layout = make_layout(dtype::float64, sizes);
  return {const_tensor_view{memory->data(), layout}, memory};
}

double value(const shared_tensor& x, int i) {
  return static_cast<const double*>(x.view().data())[i];
}

// begin: backward
using stage_list = std::vector<std::unique_ptr<batch_norm_stage>>;

void fail(const caf::error& reason) {
  std::cerr << describe(reason) << '\n';
  std::exit(EXIT_FAILURE);
}

struct pass {
  shared_tensor y;
  std::uint64_t pass_id = 0;
};

std::vector<pass> forward(caf::scoped_actor& self, const stage_list& stages,
                          const std::vector<shared_tensor>& xs) {
  // Ask all before waiting for an answer.
  std::vector<decltype(self->request(stages[0]->slave(), caf::infinite,
                                     forward_atom_v, xs[0]))>
      pending;
  for (std::size_t copy = 0; copy < stages.size(); ++copy)
    pending.push_back(self->request(stages[copy]->slave(), caf::infinite,
                                    forward_atom_v, xs[copy]));
  std::vector<pass> result;
  for (auto& one : pending)
    std::move(one).receive(
        [&](const shared_tensor& y, std::uint64_t pass_id) {
          result.push_back({y, pass_id});
        },
        fail);
  return result;
}

std::vector<shared_tensor> backward(caf::scoped_actor& self,
                                    const stage_list& stages,
                                    const std::vector<pass>& passes,
                                    const std::vector<shared_tensor>& dys) {
  std::vector<decltype(self->request(stages[0]->slave(), caf::infinite,
                                     backward_atom_v, std::uint64_t{}, dys[0]))>
      pending;
  for (std::size_t copy = 0; copy < stages.size(); ++copy)
    pending.push_back(self->request(stages[copy]->slave(), caf::infinite,
                                    backward_atom_v, passes[copy].pass_id,
                                    dys[copy]));
  std::vector<shared_tensor> dxs;
  for (auto& one : pending)
    std::move(one).receive([&](const shared_tensor& dx) { dxs.push_back(dx); },
                           fail);
  return dxs;
}
// end: backward

// begin: state
std::vector<double> read_state(caf::scoped_actor& self,
                               const batch_norm_stage& from,
                               const std::string& name) {
  std::vector<double> result;
  self->request(from.slave(), caf::infinite, read_state_atom_v, name)
      .receive(
          [&](const double_array& x) { result.assign(x.begin(), x.end()); },
          fail);
  return result;
}

void write_state(caf::scoped_actor& self, const batch_norm_stage& to,
                 const std::string& name, std::vector<double> values) {
  self->request(to.slave(), caf::infinite, write_state_atom_v, name,
                double_array{std::move(values)})
      .receive([] {}, fail);
}

void zero_gradients(caf::scoped_actor& self, const stage_list& stages) {
  for (const auto& stage : stages)
    self->request(stage->slave(), caf::infinite, zero_gradients_atom_v)
        .receive([] {}, fail);
}

void evaluate(caf::scoped_actor& self, const stage_list& stages) {
  for (const auto& stage : stages)
    self->request(stage->slave(), caf::infinite, train_atom_v, false)
        .receive([] {}, fail);
}
// end: state

// One step of gradient descent on the weight, with the gradients of all copies.
void step(caf::scoped_actor& self, const stage_list& stages, double rate) {
  double gradient = 0;
  for (const auto& stage : stages)
    gradient += read_state(self, *stage, "weight.grad")[0];
  for (const auto& stage : stages)
    write_state(self, *stage, "weight", {1 - rate * gradient});
  zero_gradients(self, stages);
}

bool near(double a, double b) {
  return std::abs(a - b) < 1e-6;
}

} // namespace

void caf_main(caf::actor_system& system) {
  batch_norm_options options{
      .name = "bn", .channels = 1, .type = dtype::float64, .eps = 0};
  stage_list stages;
  for (int copy = 0; copy < 2; ++copy)
    stages.push_back(std::make_unique<batch_norm_stage>(system, options));
  execute_replication_callbacks(stages);
  caf::scoped_actor self{system};
  // x - mean is -3, -1, 1, 3 and the deviation sqrt(5).
  auto passes =
      forward(self, stages, {make_tensor({1, 3}), make_tensor({5, 7})});
  require(near(value(passes[1].y, 1), 3 / std::sqrt(5)));
  // Of dy = 1, 0, 0, 0 the sum is 1, and that of dy * (x - mean) is -3.
  auto dxs = backward(self, stages, passes,
                      {make_tensor({1, 0}), make_tensor({0, 0})});
  auto dx = [](double dy, double xmu) {
    return (dy - 0.25 - xmu / 5 * -3 / 4) / std::sqrt(5);
  };
  require(near(value(dxs[0], 0), dx(1, -3))
          && near(value(dxs[1], 1), dx(0, 3)));
  step(self, stages, 0.5);
  auto weight = 1 + 0.5 * 3 / std::sqrt(5);
  require(near(read_state(self, *stages[1], "weight")[0], weight));
  require(read_state(self, *stages[0], "bias.grad")[0] == 0);
  evaluate(self, stages);
  // The running statistics: 0.9 of mean 0 and variance 1, 0.1 of the batch's.
  require(near(read_state(self, *stages[1], "running_mean")[0], 0.4));
  auto deviation = std::sqrt(0.9 + 0.1 * 20 / 3);
  auto alone = self->request(stages[0]->slave(), caf::infinite, forward_atom_v,
                             make_tensor({0.4 + deviation}));
  std::move(alone).receive(
      [&](const shared_tensor& y, std::uint64_t pass_id) {
        require(pass_id == 0 && near(value(y, 0), weight));
      },
      fail);
  release_replicas(stages);
}

CAF_MAIN(caf::id_block::syncnorm)
