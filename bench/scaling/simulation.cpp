#include "bench/scaling/simulation.hpp"

#include "syncnorm/sync_relay.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <stdexcept>
#include <tuple>
#include <vector>

namespace syncnorm::bench {

namespace {

/// A member of the tree: the master, a relay, or a replica.
struct place {
  /// Where it runs: the number of a replica.
  std::size_t node = 0;
  std::size_t parent = 0;
  std::vector<std::size_t> children;
  /// Messages from below that have not arrived yet.
  std::size_t missing = 0;
};

/// Position 0 is the master, relays come next, then the replicas.
std::vector<place> make_tree(std::int64_t replicas, std::int64_t fan_in) {
  auto plan = plan_relays(replicas, fan_in);
  std::vector<place> tree(1);
  for (const auto& x : plan)
    tree.push_back({static_cast<std::size_t>(x.range.first),
                    x.parent ? *x.parent + 1 : 0,
                    {},
                    0});
  for (std::int64_t id = 0; id < replicas; ++id) {
    std::size_t parent = 0;
    // Leaf relays come last.
    for (auto i = plan.size(); i-- > 0 && parent == 0;)
      if (id >= plan[i].range.first
          && id < plan[i].range.first + plan[i].range.count)
        parent = i + 1;
    tree.push_back({static_cast<std::size_t>(id), parent, {}, 0});
  }
  for (std::size_t i = 1; i < tree.size(); ++i)
    tree[tree[i].parent].children.push_back(i);
  for (auto& x : tree)
    x.missing = x.children.size();
  return tree;
}

class simulation {
public:
  simulation(const network_model& model, std::vector<place> tree,
             std::size_t nodes)
      : model_{model},
        tree_{std::move(tree)},
        busy_until_(nodes, 0.0) {}

  double run() {
    for (std::size_t i = 1; i < tree_.size(); ++i)
      if (tree_[i].children.empty())
        send(0, i, tree_[i].parent, false);
    while (!on_their_way_.empty()) {
      auto x = on_their_way_.top();
      on_their_way_.pop();
      auto& busy = busy_until_[tree_[x.to].node];
      busy = std::max(busy, x.time) + model_.handling;
      take(busy, x.to, x.is_reply);
    }
    if (replies_ != busy_until_.size())
      throw std::logic_error{"bench/scaling: a replica has no reply"};
    return end_;
  }

private:
  struct message {
    double time;
    std::size_t to;
    bool is_reply;

    /// The earliest is on top.
    bool operator<(const message& other) const {
      return std::tie(time, to) > std::tie(other.time, other.to);
    }
  };

  void send(double now, std::size_t from, std::size_t to, bool is_reply) {
    auto node = tree_[from].node;
    if (tree_[to].node == node)
      return take(now, to, is_reply);
    auto& busy = busy_until_[node];
    busy = std::max(busy, now) + model_.handling;
    on_their_way_.push({busy + model_.delay, to, is_reply});
  }

  void take(double now, std::size_t at, bool is_reply) {
    auto& x = tree_[at];
    if (!is_reply && --x.missing > 0)
      return;
    if (!is_reply && at != 0)
      return send(now, at, x.parent, false);
    if (x.children.empty()) {
      ++replies_;
      end_ = std::max(end_, now);
    }
    // What stays on the node has to wait for its turn to send.
    for (auto is_local : {false, true})
      for (auto child : x.children)
        if ((tree_[child].node == x.node) == is_local)
          send(now, at, child, true);
  }

  network_model model_;
  std::vector<place> tree_;
  std::vector<double> busy_until_;
  std::priority_queue<message> on_their_way_;
  std::size_t replies_ = 0;
  double end_ = 0;
};

} // namespace

double simulate_round(const network_model& model, std::int64_t replicas,
                      std::int64_t fan_in) {
  return simulation{model, make_tree(replicas, fan_in),
                    static_cast<std::size_t>(replicas)}
      .run();
}

double estimate_round(const network_model& model, std::int64_t replicas,
                      double fan_in) {
  auto levels = std::log(static_cast<double>(replicas)) / std::log(fan_in);
  return 2 * levels * (model.delay + fan_in * model.handling);
}

double best_fan_in(const network_model& model) {
  auto wanted = model.delay / model.handling;
  // The left side grows with f, from 0 at e on.
  auto low = std::exp(1.0);
  auto high = low + wanted + 10;
  while (high - low > 1e-9) {
    auto f = (low + high) / 2;
    (f * (std::log(f) - 1) < wanted ? low : high) = f;
  }
  return low;
}

} // namespace syncnorm::bench
