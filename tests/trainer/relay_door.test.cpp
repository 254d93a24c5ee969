#include "trainer/run/relay_door.hpp"

#include "trainer/scratch_folder.hpp"
#include "trainer/test_config.hpp"

#include "syncnorm/network.hpp"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>
#include <string>

using namespace syncnorm;
using namespace syncnorm::train;

namespace {

struct door_config : test_config {
  door_config() {
    use_network(*this);
  }
};

/// Two processes, of which the lower one is to reach the upper one.
struct two_doors {
  door_config upper_config;
  door_config lower_config;
  caf::actor_system upper_system{upper_config};
  caf::actor_system lower_system{lower_config};
  settings options = local();
  std::unique_ptr<relay_door> upper =
      std::make_unique<relay_door>(upper_system, options);
  relay_door lower{lower_system, options};

  static settings local() {
    settings result;
    result.join = "127.0.0.1:1";
    result.deadline = 10;
    return result;
  }

  std::string why_not_nobody() {
    return message_of([&] { lower.reach("127.0.0.1:1"); });
  }
};

const std::string nobody = "does not reach 127.0.0.1:1, the process above it: ";

} // namespace

TEST_CASE("a process has one door, which those below it reach until it is "
          "gone") {
  two_doors both;
  CHECK(both.lower.find_break().empty());
  auto where = both.upper->open();
  CHECK(both.upper->open() == where);
  both.lower.reach(where);
  CHECK(both.lower.find_break().empty());
  both.upper.reset();
  CHECK(both.lower.find_break()
        == fmt::format("does not reach {}, the process above it", where));
  both.lower.leave();
  CHECK(both.lower.find_break().empty());
}

TEST_CASE("a process that does not reach the one above it says why until it "
          "has another place, also if it reached one before") {
  two_doors both;
  auto where = both.upper->open();
  both.lower.reach(where);
  auto why = both.why_not_nobody();
  CHECK(why.starts_with(nobody));
  CHECK(both.lower.find_break() == why);
  both.lower.reach(where);
  CHECK(both.lower.find_break().empty());
  both.upper.reset();
  CHECK(both.lower.find_break()
        == fmt::format("does not reach {}, the process above it", where));
}

TEST_CASE("a door whose address cannot be had is named, and one that stands "
          "nowhere names the option") {
  two_doors both;
  both.options.listen = both.upper->open();
  relay_door second{both.lower_system, both.options};
  CHECK(message_of([&] { (void) second.open(); })
            .starts_with(fmt::format("--listen: {} cannot be had: ",
                                     both.options.listen)));
  both.options.listen.clear();
  both.options.join = "nobody.invalid:1";
  relay_door nowhere{both.lower_system, both.options};
  CHECK(message_of([&] { (void) nowhere.open(); })
        == "--listen: expected HOST:PORT, found none, and no address of this "
           "machine leads to nobody.invalid");
}
