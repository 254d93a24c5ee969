#pragma once

#include "syncnorm/execution.hpp"

#include <algorithm>
#include <cstdint>

namespace syncnorm::cpu {

/// How many parts `tasks` are cut into for this execution.
inline std::int64_t parts_of(const execution& run, std::int64_t tasks) {
  return run.split == nullptr ? 1 : std::min(run.split->parts, tasks);
}

/// Calls `body(first, last)` for ranges that cover [0, tasks), in parallel
/// where the caller supplies a way to. What the body does for a task must not
/// depend on the range it comes in.
template <class Body>
void for_ranges(const execution& run, std::int64_t tasks, const Body& body) {
  auto parts = parts_of(run, tasks);
  if (parts <= 1) {
    body(std::int64_t{0}, tasks);
    return;
  }
  struct job {
    const Body& body;
    std::int64_t tasks;
    std::int64_t parts;

    // The first `tasks % parts` parts have one more.
    [[nodiscard]] std::int64_t begin(std::int64_t part) const {
      return tasks / parts * part + std::min(part, tasks % parts);
    }
  } all{body, tasks, parts};
  run.split->run(
      run.split->self, parts,
      [](void* context, std::int64_t part) {
        const auto& mine = *static_cast<const job*>(context);
        mine.body(mine.begin(part), mine.begin(part + 1));
      },
      &all);
}

} // namespace syncnorm::cpu
