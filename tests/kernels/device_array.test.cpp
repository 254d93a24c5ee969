#include "syncnorm/device_array.hpp"

#include "syncnorm/error.hpp"
#include "tests/kernels/doubled.hpp"
#include "tests/kernels/emulated_devices.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <limits>
#include <new>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

using namespace syncnorm;
using syncnorm::testing::doubled;
using syncnorm::testing::emulated_devices;

namespace {

constexpr device gpu0{device_type::cuda, 0};
constexpr device gpu1{device_type::cuda, 1};

using faults = std::vector<std::string>;

/// An array of `values`, published.
device_array upload(const device_stream& stream,
                    const std::vector<double>& values,
                    const pinned_memory& host) {
  std::copy(values.begin(), values.end(), static_cast<double*>(host.data()));
  device_array result{stream, dtype::float64, values.size()};
  stream.runtime().copy(stream.run(), result.data(), stream.where(),
                        host.data(), {}, result.bytes());
  result.publish();
  return result;
}

std::vector<double> download(const device_array& x) {
  pinned_memory host{x.stream(), x.bytes()};
  x.copy_to(host);
  x.stream().record().synchronize();
  const auto* first = static_cast<const double*>(host.data());
  return {first, first + x.size()};
}

} // namespace

TEST_CASE("streams and devices hand an array on by events, and no thread "
          "waits") {
  emulated_devices gpus{2};
  auto a = device_stream::make(gpus, gpu0);
  auto b = device_stream::make(gpus, gpu0);
  auto c = device_stream::make(gpus, gpu1);
  pinned_memory host{a, 16};
  gpus.hold();
  auto x = upload(a, {1, 2}, host);
  auto y = doubled(b, x);
  auto there = y.on_device_of(c);
  auto z = doubled(c, there);
  CHECK(z.stream() == c);
  CHECK(gpus.waits() == 0);
  gpus.go();
  CHECK(download(z) == std::vector<double>{4, 8});
  CHECK(gpus.faults() == faults{});
}

TEST_CASE("an array's memory goes back when the last stream has read it") {
  emulated_devices gpus{2};
  // The writer's stream, made last, goes first if nothing holds it back.
  auto b = device_stream::make(gpus, gpu0);
  auto a = device_stream::make(gpus, gpu0);
  pinned_memory host{a, 16};
  std::optional<device_array> x = upload(a, {3, 4}, host);
  a.record().synchronize();
  gpus.hold();
  auto y = doubled(b, *x);
  x.reset();
  gpus.go();
  CHECK(download(y) == std::vector<double>{6, 8});
  gpus.drain();
  CHECK(gpus.faults() == faults{});
}

TEST_CASE("a part of an array is an array that shares its memory and its "
          "event") {
  emulated_devices gpus{2};
  auto a = device_stream::make(gpus, gpu0);
  auto b = device_stream::make(gpus, gpu0);
  auto there = device_stream::make(gpus, gpu1);
  pinned_memory host{a, 40};
  gpus.hold();
  std::optional<device_array> x = upload(a, {1, 2, 3, 4, 5}, host);
  auto middle = x->part(1, 3);
  auto last = middle.part(2, 1);
  CHECK(middle.size() == 3);
  CHECK(middle.bytes() == 24);
  CHECK(middle.data() == x->at(1));
  CHECK(middle.at(2) == last.data());
  CHECK(x->part(5, 0).size() == 0);
  x.reset();
  auto y = doubled(b, middle);
  auto z = doubled(there, last.on_device_of(there));
  last = {};
  gpus.go();
  CHECK(download(y) == std::vector<double>{4, 6, 8});
  CHECK(download(z) == std::vector<double>{8});
  CHECK(download(middle) == std::vector<double>{2, 3, 4});
  gpus.drain();
  CHECK(gpus.faults() == faults{});
}

TEST_CASE(
    "a reader's end throws nothing, also where there is no memory for its "
    "event") {
  emulated_devices gpus{1};
  auto a = device_stream::make(gpus, gpu0);
  auto b = device_stream::make(gpus, gpu0);
  pinned_memory host{a, 16};
  auto x = upload(a, {3, 4}, host);
  {
    auto reading = x.read_on(b);
    gpus.refuse_events();
    CHECK_THROWS_AS(std::ignore = b.record(), std::bad_alloc);
  }
  gpus.drain();
  CHECK(gpus.faults() == faults{});
}

TEST_CASE("an array is kept for a reader of which nobody knows when it ends") {
  emulated_devices gpus{1};
  // The last one works first.
  auto b = device_stream::make(gpus, gpu0);
  auto a = device_stream::make(gpus, gpu0);
  pinned_memory host{a, 16};
  std::optional<device_array> x = upload(a, {3, 4}, host);
  device_array out{b, dtype::float64, 2};
  a.record().synchronize();
  gpus.hold();
  {
    auto reading = x->read_on(b);
    std::array<const void*, 1> parts{reading.data()};
    gpus.add_arrays(b.run(), parts, 2, dtype::float64, out.data());
    gpus.refuse_events();
  }
  x.reset();
  gpus.go();
  gpus.drain();
  CHECK(gpus.faults() == faults{});
}

TEST_CASE("the emulated devices find what has no order") {
  emulated_devices gpus{1};
  auto a = device_stream::make(gpus, gpu0);
  auto b = device_stream::make(gpus, gpu0);
  pinned_memory host{a, 16};
  gpus.hold();
  std::optional<device_array> x = upload(a, {3, 4}, host);
  device_array out{b, dtype::float64, 2};
  // Neither behind the ready-event nor before the memory goes back.
  std::array<const void*, 1> parts{x->data()};
  gpus.add_arrays(b.run(), parts, 2, dtype::float64, out.data());
  gpus.go();
  gpus.drain();
  CHECK(download(out)[0] != 3);
  auto lost = x->data();
  x.reset();
  gpus.drain();
  gpus.add_arrays(b.run(), std::array<const void*, 1>{lost}, 2, dtype::float64,
                  out.data());
  gpus.drain();
  CHECK(gpus.faults() == faults{"add_arrays: memory that was given back"});
}

TEST_CASE("a device that is not there, or has failed, is an error") {
  emulated_devices gpus{1};
  try {
    std::ignore = device_stream::make(gpus, gpu1);
    FAIL("nothing was thrown");
  } catch (const error& e) {
    CHECK(e.code() == errc::device_unavailable);
  }
  auto a = device_stream::make(gpus, gpu0);
  auto event = a.record();
  gpus.break_device(0);
  try {
    event.synchronize();
    FAIL("nothing was thrown");
  } catch (const error& e) {
    CHECK(e.code() == errc::device_failure);
  }
}

namespace {

/// What the error of that code says.
template <class F>
std::string refusal(const F& f, errc code = errc::invalid_argument) {
  try {
    f();
  } catch (const error& e) {
    CHECK(e.code() == code);
    return e.what();
  }
  return "no error";
}

} // namespace

TEST_CASE("what needs a stream or an array refuses none") {
  emulated_devices gpus{1};
  auto a = device_stream::make(gpus, gpu0);
  device_array x{a, dtype::float64, 2};
  x.publish();
  const std::string stream = ": stream: expected a stream, got none";
  const std::string array = ": array: expected an array, got none";
  CHECK(refusal([] { std::ignore = device_stream{}.record(); })
        == "device_stream::record" + stream);
  CHECK(refusal([&] { device_stream{}.wait_for(a.record()); })
        == "device_stream::wait_for" + stream);
  CHECK(refusal([] { pinned_memory({}, 8); }) == "pinned_memory" + stream);
  CHECK(refusal([] { device_array({}, dtype::float64, 2); })
        == "device_array" + stream);
  CHECK(refusal([&] { std::ignore = x.on_device_of({}); })
        == "device_array::on_device_of" + stream);
  CHECK(refusal([&] { std::ignore = x.read_on({}); })
        == "device_array::read_on" + stream);
  const std::string part =
      "device_array::part: size: expected 2 elements or fewer in all, got ";
  CHECK(refusal([&] { std::ignore = x.part(1, 2); }) == part + "2 from 1 on");
  CHECK(refusal([&] { std::ignore = x.part(3, 0); }) == part + "0 from 3 on");
  constexpr auto most = std::numeric_limits<std::size_t>::max();
  CHECK(refusal([&] { std::ignore = x.part(1, most); })
        == part + std::to_string(most) + " from 1 on");
  CHECK(refusal([] { device_array{}.publish(); })
        == "device_array::publish" + array);
  CHECK(refusal([] { device_array{}.copy_to({}); })
        == "device_array::copy_to" + array);
}

TEST_CASE("no stream, array or event is one that does nothing") {
  CHECK(!device_stream{});
  CHECK(device_event{}.has_passed());
  device_event{}.synchronize();
  CHECK(device_array{}.size() == 0);
  CHECK(device_array{}.data() == nullptr);
  CHECK(device_array{}.part(0, 0).data() == nullptr);
  CHECK(device_array{}.read_on({}).data() == nullptr);
}

TEST_CASE("an array that is moved elsewhere, or empty, has no elements") {
  emulated_devices gpus{1};
  auto a = device_stream::make(gpus, gpu0);
  device_array x{a, dtype::float64, 2};
  auto y = std::move(x);
  // NOLINTNEXTLINE(bugprone-use-after-move)
  CHECK(x.size() == 0);
  CHECK(x.bytes() == 0);
  CHECK(y.size() == 2);
  a.wait_for({});
}

TEST_CASE("streams are the same where device, runtime and handle are") {
  emulated_devices gpus{2};
  emulated_devices others{1};
  auto a = device_stream::borrow(gpus, gpu0, nullptr);
  CHECK(a == device_stream::borrow(gpus, gpu0, nullptr));
  CHECK_FALSE(a == device_stream::borrow(gpus, gpu1, nullptr));
  CHECK_FALSE(a == device_stream::borrow(others, gpu0, nullptr));
  CHECK_FALSE(a == device_stream::make(gpus, gpu0));
  CHECK_FALSE(a == device_stream{});
  CHECK(device_stream{} == device_stream{});
  CHECK_THROWS_AS(std::ignore = device_stream::borrow(others, gpu1, nullptr),
                  error);
}

TEST_CASE("a stream that was made, and an event, end with their last owner, "
          "and one that is borrowed does not") {
  emulated_devices gpus{1};
  {
    auto a = device_stream::make(gpus, gpu0);
    CHECK(gpus.handles() == 1);
    {
      auto copy = a;
      auto event = copy.record();
      CHECK(gpus.handles() == 2);
    }
    CHECK(gpus.handles() == 1);
    auto borrowed = device_stream::borrow(gpus, gpu0, nullptr);
  }
  CHECK(gpus.handles() == 0);
}

TEST_CASE("an array is copied to another device only, and read there behind "
          "the copy") {
  emulated_devices gpus{2};
  // The last one works first.
  auto there = device_stream::make(gpus, gpu1);
  auto reader = device_stream::make(gpus, gpu1);
  auto a = device_stream::make(gpus, gpu0);
  auto b = device_stream::make(gpus, gpu0);
  pinned_memory host{a, 16};
  auto x = upload(a, {1, 2}, host);
  CHECK(x.on_device_of(b).data() == x.data());
  a.record().synchronize();
  gpus.hold();
  auto copied = x.on_device_of(there);
  auto y = doubled(reader, copied);
  gpus.go();
  CHECK(download(y) == std::vector<double>{2, 4});
  CHECK(gpus.faults() == faults{});
}

TEST_CASE("memory of the host that is too small for an array is refused") {
  emulated_devices gpus{1};
  auto a = device_stream::make(gpus, gpu0);
  device_array x{a, dtype::float64, 2};
  pinned_memory host{a, 15};
  CHECK(refusal([&] { x.copy_to(host); }, errc::workspace_too_small)
        == "device_array::copy_to: host: expected 16 bytes or more, got 15");
}
