#include "syncnorm/device.hpp"
#include "syncnorm/error.hpp"

#include <doctest/doctest.h>

using namespace syncnorm;

TEST_CASE("a device survives the way through its text") {
  for (device where :
       {device{}, device{device_type::cpu, 3}, device{device_type::cuda, 0},
        device{device_type::cuda, 32767}})
    CHECK(parse_device(to_string(where)) == where);
  CHECK(to_string(device{}) == "cpu");
  CHECK(to_string(device{device_type::cpu, 3}) == "cpu:3");
  CHECK(to_string(device{device_type::cuda, 1}) == "cuda:1");
  CHECK(to_string(device{device_type{7}, 1}) == "device type 7");
  CHECK(parse_device("cuda") == device{device_type::cuda, 0});
  CHECK(parse_device("cpu:0") == device{});
}

TEST_CASE("text that names no device is refused, and quoted") {
  for (const auto* text :
       {"", "gpu", "cpu:", "cpu:-1", "cpu:-0", "cpu:+1", "cpu:1x", "cpu: 1",
        "cuda:32768", "cuda:99999999999", "CPU", "cpu:1:2", ":1"}) {
    INFO(text);
    try {
      (void) parse_device(text);
      FAIL_CHECK("no error");
    } catch (const error& e) {
      CHECK(e.code() == errc::invalid_argument);
      CHECK(std::string{e.what()}.find('"' + std::string{text} + '"')
            != std::string::npos);
    }
  }
}

TEST_CASE("all CPU devices share one memory, CUDA devices do not") {
  device cpu0{};
  device cpu1{device_type::cpu, 1};
  device cuda0{device_type::cuda, 0};
  device cuda1{device_type::cuda, 1};
  CHECK(same_memory(cpu0, cpu1));
  CHECK(same_memory(cuda1, cuda1));
  CHECK_FALSE(same_memory(cuda0, cuda1));
  CHECK_FALSE(same_memory(cpu0, cuda0));
}

TEST_CASE("the CPU comes first and is always there") {
  auto all = devices();
  REQUIRE_FALSE(all.empty());
  CHECK(all[0] == device{});
  for (const auto& where : all)
    CHECK_NOTHROW(require_available(where));
  CHECK_NOTHROW(require_available({device_type::cpu, 17}));
}

TEST_CASE("a device that does not exist is unavailable, and named") {
  for (device where :
       {device{device_type::cuda, 1000}, device{device_type::cuda, -1},
        device{device_type::cpu, -1}, device{device_type{7}, 0}}) {
    try {
      require_available(where);
      FAIL_CHECK("no error");
    } catch (const error& e) {
      CHECK(e.code() == errc::device_unavailable);
      std::string text = e.what();
      CHECK(text.find(to_string(where)) != std::string::npos);
      CHECK((text.find("index of 0 or more") != std::string::npos)
            == (where.index < 0));
    }
  }
}
