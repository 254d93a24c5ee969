#pragma once

#include "messages.hpp"
#include "records.hpp"

#include <syncnorm/tensor_pool.hpp>

#include <cstdint>
#include <memory>

namespace pipeline {

struct source_options {
  /// Records in a batch.
  std::int64_t batch_size = 64;
  /// The most batches in flight at a time.
  std::uint64_t in_flight = 16;
};

/// Reads records and sends them in batches while there is credit. Spawn it
/// detached: reading blocks its thread.
class source : public source_actor::base {
public:
  source(caf::actor_config& config, std::shared_ptr<record_reader> reader,
         source_options options);

  void on_exit() override;
  behavior_type make_behavior() override;

private:
  void produce();
  /// Returns a batch; at the end, it is shorter than the others or empty.
  batch read_batch();
  /// The same, if there is memory for it.
  batch fill_batch();
  void finish(const std::string& failure);

  std::shared_ptr<record_reader> reader_;
  source_options options_;
  syncnorm::tensor_pool pool_;
  stage_actor next_;
  std::uint64_t on_their_way_ = 0;
  totals totals_;
  bool ended_ = false;
};

} // namespace pipeline
