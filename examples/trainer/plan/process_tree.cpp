#include "trainer/plan/process_tree.hpp"

#include <utility>

namespace syncnorm::train {

namespace {

using position = std::optional<std::size_t>;

class planner {
public:
  explicit planner(std::span<const std::size_t> replicas) : begins_{0} {
    for (auto n : replicas)
      begins_.push_back(begins_.back() + static_cast<std::int64_t>(n));
    tree_.followed.resize(replicas.size());
  }

  process_tree plan(std::int64_t fan_in) {
    add_groups(fan_in);
    for (std::size_t i = 1; i < tree_.followed.size(); ++i)
      add_own(i);
    return std::move(tree_);
  }

private:
  [[nodiscard]] replica_range replicas_of(std::size_t first,
                                          std::size_t count) const {
    return {begins_[first], begins_[first + count] - begins_[first]};
  }

  std::size_t add(std::size_t process, replica_range range, position parent) {
    auto depth = parent ? tree_.relays[*parent].depth + 1 : 0;
    tree_.relays.push_back({process, range, parent, depth});
    return tree_.relays.size() - 1;
  }

  /// Relays that would have only one participant are left out.
  void add_groups(std::int64_t fan_in) {
    auto processes = static_cast<std::int64_t>(tree_.followed.size());
    std::vector<position> made;
    for (const auto& x : plan_relays(processes, fan_in)) {
      auto first = static_cast<std::size_t>(x.range.first);
      auto count = static_cast<std::size_t>(x.range.count);
      auto range = replicas_of(first, count);
      auto at = x.parent ? made[*x.parent] : position{};
      if (count > 1 && (!at || tree_.relays[*at].range != range))
        at = add(first, range, at);
      made.push_back(at);
      for (auto i = first; i < first + count; ++i)
        tree_.followed[i] = at;
    }
  }

  /// One message for all its replicas leaves a process. Below another process,
  /// even a single replica has a relay, which learns at once when that process
  /// is lost.
  void add_own(std::size_t i) {
    auto& at = tree_.followed[i];
    auto range = replicas_of(i, 1);
    if ((range.count > 1 || at) && !(at && tree_.relays[*at].process == i))
      at = add(i, range, at);
  }

  /// The first replica of each process, and how many there are.
  std::vector<std::int64_t> begins_;
  process_tree tree_;
};

} // namespace

std::optional<std::size_t> process_tree::above(std::size_t i) const {
  for (auto at = followed[i]; at; at = relays[*at].parent)
    if (relays[*at].process != i)
      return relays[*at].process;
  return std::nullopt;
}

process_tree plan_process_tree(std::span<const std::size_t> replicas,
                               std::int64_t fan_in) {
  return planner{replicas}.plan(fan_in);
}

} // namespace syncnorm::train
