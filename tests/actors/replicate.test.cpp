#include "syncnorm/replicate.hpp"

#include "syncnorm/error.hpp"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace syncnorm;

namespace {

using names = std::vector<std::string>;

/// A module of a user's own, without a common base.
struct node {
  std::string type;
  std::vector<std::pair<std::string, std::shared_ptr<node>>> parts;

  [[nodiscard]] const std::string& kind() const {
    return type;
  }

  [[nodiscard]] const auto& children() const {
    return parts;
  }

  void on_data_parallel_replicate(callback_context& context, std::int64_t id) {
    if (on_replicate)
      on_replicate(context, id);
  }

  void on_data_parallel_release() {
    if (on_release)
      on_release();
  }

  std::function<void(callback_context&, std::int64_t)> on_replicate;
  std::function<void()> on_release;
};

using node_ptr = std::shared_ptr<node>;

node_ptr make(std::string type, decltype(node::parts) parts = {}) {
  auto result = std::make_shared<node>();
  result->type = std::move(type);
  result->parts = std::move(parts);
  return result;
}

/// Two norms side by side below `features`, a third at the top.
node_ptr make_net() {
  auto features =
      make("Sequential", {{"conv", make("Conv2d")}, {"norm", make("Norm")}});
  return make("Net", {{"features", features}, {"head", make("Norm")}});
}

void log_calls(const node_ptr& m, names& log) {
  m->on_replicate = [&log](callback_context& context, std::int64_t id) {
    log.push_back(context.path() + "@" + std::to_string(id));
  };
  m->on_release = [&log, m = m.get()] { log.push_back("-" + m->type); };
  for (auto& [name, child] : m->parts)
    log_calls(child, log);
}

/// The text of the error that `f` throws.
template <class F>
std::string error_of(F f, errc code = errc::invalid_argument) {
  try {
    f();
  } catch (const error& x) {
    CHECK(x.code() == code);
    return x.what();
  }
  return "no error";
}

std::string difference(const node_ptr& a, const node_ptr& b) {
  names log;
  log_calls(a, log);
  auto text = error_of([&] {
    execute_replication_callbacks(std::vector{a, a == b ? a : b});
  });
  CHECK(log.empty());
  return text;
}

/// A hierarchy with a polymorphic base, as libtorch's.
struct base_module {
  virtual ~base_module() = default;
  [[nodiscard]] virtual std::string kind() const {
    return "plain";
  }
  std::vector<std::pair<std::string, std::unique_ptr<base_module>>> parts;
  [[nodiscard]] auto& children() const {
    return parts;
  }
};

struct norm_module final : base_module, replicable {
  [[nodiscard]] std::string kind() const override {
    return "norm";
  }
  void on_data_parallel_replicate(callback_context& context,
                                  std::int64_t copy_id) override {
    if (copy_id == 0)
      context.publish(std::string{"from copy 0"});
    seen = context.published<std::string>();
    copies = context.copies();
  }
  void on_data_parallel_release() override {
    seen.clear();
  }
  std::string seen;
  std::int64_t copies = 0;
};

/// A network whose layers are of another type, the first at its own address.
struct network {
  node first;
  node second;

  [[nodiscard]] std::vector<std::pair<std::string, node*>> children() {
    return {{"first", &first}, {"second", &second}};
  }
};

} // namespace

TEST_CASE("all callbacks of copy 0 run before any other copy's, parents first "
          "and children in order") {
  names log;
  std::vector copies{make_net(), make_net(), make_net()};
  for (auto& copy : copies)
    log_calls(copy, log);
  execute_replication_callbacks(copies);
  CHECK(log
        == names{"@0", "features@0", "features.conv@0", "features.norm@0",
                 "head@0", "@1", "features@1", "features.conv@1",
                 "features.norm@1", "head@1", "@2", "features@2",
                 "features.conv@2", "features.norm@2", "head@2"});
}

TEST_CASE("the copies of a sub-module share one context, other sub-modules "
          "have another") {
  std::vector copies{make_net(), make_net()};
  std::vector<callback_context*> norms;
  std::vector<callback_context*> heads;
  for (auto& copy : copies) {
    copy->parts[0].second->parts[1].second->on_replicate =
        [&](callback_context& context, std::int64_t) {
          norms.push_back(&context);
        };
    copy->parts[1].second->on_replicate = [&](callback_context& context,
                                              std::int64_t) {
      heads.push_back(&context);
    };
  }
  execute_replication_callbacks(copies);
  REQUIRE(norms.size() == 2);
  REQUIRE(heads.size() == 2);
  CHECK(norms[0] == norms[1]);
  CHECK(heads[0] == heads[1]);
  CHECK(norms[0] != heads[0]);
}

TEST_CASE("sub-modules may be of another type than their parent") {
  names log;
  std::vector<network> copies(2);
  std::vector<network*> pointers;
  for (auto& copy : copies) {
    pointers.push_back(&copy);
    for (auto& [name, layer] : copy.children()) {
      layer->type = "Norm";
      layer->on_replicate = [&log](callback_context& context, std::int64_t id) {
        log.push_back(context.path() + "@" + std::to_string(id));
      };
      layer->on_release = [&log, name = name] { log.push_back("-" + name); };
    }
  }
  execute_replication_callbacks(pointers);
  CHECK(log == names{"first@0", "second@0", "first@1", "second@1"});
  log.clear();
  release_replicas(pointers);
  CHECK(log == names{"-first", "-second", "-first", "-second"});
  copies[1].second.type = "Conv2d";
  CHECK(error_of([&] { execute_replication_callbacks(pointers); })
        == "execute_replication_callbacks: copy 1 differs from copy 0 at "
           "second: expected Norm, found Conv2d");
}

TEST_CASE("modules below a polymorphic base are found, and slaves read what "
          "copy 0 published") {
  std::vector<std::unique_ptr<base_module>> copies;
  std::vector<norm_module*> norms;
  for (int i = 0; i < 2; ++i) {
    copies.push_back(std::make_unique<base_module>());
    auto norm = std::make_unique<norm_module>();
    norms.push_back(norm.get());
    copies.back()->parts.emplace_back("norm", std::move(norm));
  }
  execute_replication_callbacks(copies);
  for (auto* norm : norms) {
    CHECK(norm->seen == "from copy 0");
    CHECK(norm->copies == 2);
  }
  release_replicas(copies);
  CHECK(norms[1]->seen.empty());
}

TEST_CASE("a sub-module that stands in two places is called once") {
  names log;
  auto make_twin = [] {
    auto shared = make("Norm");
    return make("Net", {{"a", shared}, {"b", shared}});
  };
  std::vector copies{make_twin(), make_twin()};
  for (auto& copy : copies)
    log_calls(copy, log);
  execute_replication_callbacks(copies);
  CHECK(log == names{"@0", "a@0", "@1", "a@1"});
}

TEST_CASE("of copies that differ the first difference is named, and no "
          "callback runs") {
  SUBCASE("in kind") {
    auto other = make_net();
    other->parts[0].second->parts[1].second->type = "ReLU";
    CHECK(difference(make_net(), other)
          == "execute_replication_callbacks: copy 1 differs from copy 0 at "
             "features.norm: expected Norm, found ReLU");
  }
  SUBCASE("in the number of children") {
    auto other = make_net();
    other->parts[0].second->parts.pop_back();
    CHECK(difference(make_net(), other)
          == "execute_replication_callbacks: copy 1 differs from copy 0 at "
             "features: expected 2 children (conv, norm), found 1 child "
             "(conv)");
  }
  SUBCASE("in a child's name, at the root") {
    auto other = make_net();
    other->parts[1].first = "tail";
    CHECK(difference(make_net(), other)
          == "execute_replication_callbacks: copy 1 differs from copy 0 at the "
             "root: expected 2 children (features, head), found 2 children "
             "(features, tail)");
  }
  SUBCASE("in what is shared inside of the tree") {
    auto shared = make("Norm");
    auto twin = make("Net", {{"a", shared}, {"b", shared}});
    auto two = make("Net", {{"a", make("Norm")}, {"b", make("Norm")}});
    CHECK(difference(twin, two)
          == "execute_replication_callbacks: copy 1 differs from copy 0 at b: "
             "expected the module at a, found a module of its own");
  }
}

TEST_CASE("no copies, a null copy and a null sub-module are refused") {
  CHECK(error_of([] {
          execute_replication_callbacks(std::vector<node_ptr>{});
        }).find("expected 1 copy or more, got none")
        != std::string::npos);
  CHECK(error_of([] {
          execute_replication_callbacks(std::vector{make_net(), node_ptr{}});
        }).find("copy 1 is null")
        != std::string::npos);
  CHECK(error_of([] {
          auto broken = make_net();
          broken->parts[0].second->parts[1].second = nullptr;
          execute_replication_callbacks(std::vector{broken});
        }).find("the sub-module features.norm is null")
        != std::string::npos);
}

TEST_CASE("a callback never runs twice: two copies may not be one object") {
  auto net = make_net();
  CHECK(error_of([&] {
          execute_replication_callbacks(std::vector{net, net});
        })
            .find("copies 0 and 1 share the sub-module the root: its callback "
                  "would run twice")
        != std::string::npos);
}

TEST_CASE("a context refuses a second publication, and reading what is not "
          "there") {
  callback_context context{"bn1", 2};
  CHECK(error_of([&] {
          std::ignore = context.published<int>();
        }).find("found nothing")
        != std::string::npos);
  context.publish(7);
  CHECK(context.published<int>() == 7);
  CHECK(error_of([&] {
          context.publish(8);
        }).find("callback_context of bn1: something was published before")
        != std::string::npos);
  CHECK(error_of([&] {
          std::ignore = context.published<std::string>();
        }).find("found a value of another type")
        != std::string::npos);
  CHECK(context.published<int>() == 7);
}

TEST_CASE("what a callback throws reaches the caller, and those called before "
          "are released") {
  names log;
  std::vector copies{make_net(), make_net()};
  for (auto& copy : copies)
    log_calls(copy, log);
  copies[0]->parts[0].second->on_replicate = [](auto&, auto) {
    throw error{errc::device_unavailable, "no such device"};
  };
  CHECK(error_of([&] { execute_replication_callbacks(copies); },
                 errc::device_unavailable)
        == "no such device");
  CHECK(log == names{"@0", "-Net"});
}

TEST_CASE("a release that throws does not keep the others from theirs, and the "
          "caller gets what was thrown first") {
  names log;
  std::vector copies{make_net(), make_net()};
  for (auto& copy : copies)
    log_calls(copy, log);
  auto fail_to_release = [&log](node& m, const char* text) {
    m.on_release = [&log, text] {
      log.emplace_back("failed");
      throw error{errc::device_failure, text};
    };
  };
  fail_to_release(*copies[0], "first");
  fail_to_release(*copies[0]->parts[0].second, "second");
  const names of_copy_0{"failed", "failed", "-Conv2d", "-Norm", "-Norm"};
  SUBCASE("after a callback that threw") {
    copies[1]->on_replicate = [&log](auto&, auto) {
      log.clear();
      throw error{errc::device_unavailable, "no such device"};
    };
    CHECK(error_of([&] { execute_replication_callbacks(copies); },
                   errc::device_unavailable)
          == "no such device");
    CHECK(log == of_copy_0);
  }
  SUBCASE("in release_replicas") {
    CHECK(error_of([&] { release_replicas(copies); }, errc::device_failure)
          == "first");
    auto all = of_copy_0;
    for (const auto* name :
         {"-Net", "-Sequential", "-Conv2d", "-Norm", "-Norm"})
      all.emplace_back(name);
    CHECK(log == all);
  }
}

TEST_CASE("whoever is given a null copy says so under its own name, before it "
          "releases any") {
  names log;
  auto net = make_net();
  log_calls(net, log);
  CHECK(error_of([&] {
          release_replicas(std::vector{net, node_ptr{}, net});
        })
        == "release_replicas: copy 1 is null");
  CHECK(error_of([] { fail_replica<node>(nullptr, "why"); })
        == "fail_replica: the copy is null");
  net->parts[1].second = nullptr;
  CHECK(error_of([&] { release_replicas(std::vector{net}); })
        == "release_replicas: the sub-module head is null");
  CHECK(log.empty());
}
