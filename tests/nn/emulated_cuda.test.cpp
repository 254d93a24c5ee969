// Copies on CUDA devices, which the host emulates.

#include "tests/nn/emulated_cuda.hpp"

namespace syncnorm::nn::test {

namespace {

std::vector<torch::Device> places() {
  use_emulation();
  return {{torch::kCUDA, 0}, {torch::kCUDA, 1}};
}

} // namespace

} // namespace syncnorm::nn::test

#include "tests/nn/device_cases.hpp"

namespace syncnorm::nn::test {

TEST_CASE("nobody waits for a device as long as all copies are on devices, and "
          "each of their messages is sent once") {
  actors env;
  SynchronizedBatchNorm2d layer{5};
  auto gpu = on_devices(3);
  layer->to(gpu[0]);
  DataParallelWithCallback parallel{
      env.system, layer, DataParallelWithCallbackOptions{}.devices(gpu)};
  auto x = random_batch(6, torch::kFloat).to(gpu[0]).requires_grad_();
  parallel->forward(x).sum().backward();
  auto waits = emulation().waits();
  auto merges = emulation().calls("merge_moments");
  parallel->forward(x).sum().backward();
  CHECK(emulation().waits() == waits);
  CHECK(emulation().calls("merge_moments") == merges + 1);
  for (const auto& copy : parallel->copies())
    CHECK(copy->as<SynchronizedBatchNorm2d>()->messages_sent() == 2);
}

TEST_CASE("copies use the caller's streams, forward and backward") {
  actors env;
  SynchronizedBatchNorm2d layer{5};
  reference truth{layer, torch::kDouble};
  auto gpu = on_devices(2);
  layer->to(gpu[0]);
  std::vector<c10::Stream> streams;
  for (const auto& where : gpu)
    streams.emplace_back(
        c10::Stream::UNSAFE, where,
        reinterpret_cast<c10::StreamId>(
            emulation().make_stream({device_type::cuda, where.index()})));
  DataParallelWithCallback parallel{
      env.system, layer, DataParallelWithCallbackOptions{}.devices(gpu)};
  auto x = random_batch(6, torch::kDouble).requires_grad_();
  auto z = x.detach().requires_grad_();
  auto expected = truth.plain->forward(z);
  Tensor y;
  {
    c10::StreamGuard first{streams[0]};
    c10::StreamGuard second{streams[1]};
    y = parallel->forward(x.to(gpu[0]));
  }
  auto dy = torch::randn_like(expected);
  y.backward(dy.to(gpu[0]));
  expected.backward(dy);
  CHECK(truth.near(expected, y));
  CHECK(truth.near(z.grad(), x.grad()));
}

TEST_CASE("without CUDA in libtorch or the kernels a tensor on a device is "
          "refused in words") {
  auto gpu = on_devices(1)[0];
  SynchronizedBatchNorm2d layer{5};
  layer->to(gpu);
  auto x = random_batch(2, torch::kFloat).to(gpu);
  auto here = std::exchange(detail::access_in_use(), detail::access_of_build());
  CHECK_THROWS_WITH_AS(
      layer->forward(x),
      "SynchronizedBatchNorm2d: input: expected a tensor on the CPU, as this "
      "build of syncnorm::torch has no CUDA: it needs a libtorch with CUDA and "
      "SYNCNORM_ENABLE_CUDA, got one on cuda:0",
      error);
  detail::access_in_use() = here;
}

TEST_CASE("nothing above was out of order") {
  emulation().drain();
  for (const auto& fault : emulation().faults())
    FAIL_CHECK(fault);
}

} // namespace syncnorm::nn::test
