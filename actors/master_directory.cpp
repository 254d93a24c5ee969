#include "syncnorm/master_directory.hpp"

#include "time_budget.hpp"

#include "syncnorm/detail/caf/logger_guard.hpp"
#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace syncnorm {

namespace {

/// Limits in texts: the length of a name, and the number of names.
constexpr std::size_t max_shown = 80;
constexpr std::size_t max_listed = 20;

using table = std::map<std::string, named_master>;

std::string list_names(const table& masters) {
  std::string result;
  std::size_t left = max_listed;
  for (const auto& [name, master] : masters) {
    if (left-- == 0)
      return result + ", ...";
    result += (result.empty() ? "" : ", ") + name.substr(0, max_shown);
  }
  return result.empty() ? "none" : result;
}

class directory : public master_directory::base {
public:
  directory(caf::actor_config& config, table masters)
      : master_directory::base{config},
        masters_{std::move(masters)} {}

  const char* name() const override {
    return "syncnorm.directory";
  }

  void on_exit() override {
    masters_.clear();
  }

  behavior_type make_behavior() override {
    return {[this](const std::string& name) { return find(name); }};
  }

private:
  caf::result<caf::strong_actor_ptr, std::set<std::string>>
  find(const std::string& name) const {
    auto found = masters_.find(name);
    if (found == masters_.end())
      return make_error(errc::invalid_argument,
                        fmt::format("no master is called \"{}\" here; known: "
                                    "{}",
                                    name.substr(0, max_shown),
                                    list_names(masters_)));
    return {found->second.actor(), found->second.interface()};
  }

  table masters_;
};

void require(bool good, const std::string& name, const char* why) {
  if (!good)
    throw error{
        errc::invalid_argument,
        fmt::format("spawn_master_directory: master \"{}\": {}", name, why)};
}

caf::error find_error(const std::string& host, std::uint16_t port, errc code,
                      const std::string& why) {
  return make_error(
      code, fmt::format("remote_master: port {} of {}: {}", port, host, why));
}

} // namespace

master_directory spawn_master_directory(caf::actor_system& system,
                                        std::vector<named_master> masters) {
  table all;
  for (auto& x : masters) {
    auto name = x.name();
    require(!name.empty(), name, "expected a name, got none");
    require(x.actor() != nullptr, name, "expected a master, got none");
    require(x.actor()->node() == system.node(), name,
            "expected a master of this node, got another node's");
    require(all.emplace(name, std::move(x)).second, name,
            "the name comes twice");
  }
  detail::logger_guard guard;
  return system.spawn<directory>(std::move(all));
}

namespace detail {

caf::expected<caf::strong_actor_ptr>
find_named(caf::actor_system& system, const std::set<std::string>& interface,
           const std::string& host, std::uint16_t port, const std::string& name,
           const connect_options& options) {
  time_budget patience{options.patience};
  auto directory = remote_handle<master_directory>(system, host, port, options);
  if (!directory)
    return directory.error();
  caf::expected<caf::strong_actor_ptr> result{caf::sec::runtime_error};
  logger_guard guard;
  caf::scoped_actor self{system};
  request_within(self, patience.left(), *directory, name)
      .receive(
          [&](const caf::strong_actor_ptr& actor,
              const std::set<std::string>& found) {
            // The directory speaks for its own node only.
            if (!actor || actor->node() != directory->node())
              result = find_error(host, port, errc::malformed_message,
                                  "the directory names no actor of its node");
            else if (!system.assignable(found, interface))
              result = find_error(
                  host, port, errc::invalid_argument,
                  fmt::format("\"{}\" is a master of another type", name));
            else
              result = actor;
          },
          [&](const caf::error& x) {
            auto code = code_of(x);
            result = find_error(host, port, code.value_or(errc::master_down),
                                is_timeout(x) ? patience.text()
                                : code        ? text_of(x)
                                              : describe(x));
          });
  return result;
}

} // namespace detail

} // namespace syncnorm
