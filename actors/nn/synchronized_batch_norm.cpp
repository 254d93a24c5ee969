#include "syncnorm/nn/synchronized_batch_norm.hpp"

#include "actors/nn/layer_check.hpp"
#include "actors/nn/seat.hpp"
#include "syncnorm/error.hpp"
#include "syncnorm/nn/detail/replication_scope.hpp"

#include <string>
#include <utility>

namespace syncnorm::nn {

using namespace detail;

std::string detail::kind_of(const torch::nn::Module& m) {
  const auto* layer = dynamic_cast<const SynchronizedBatchNormBase*>(&m);
  return layer != nullptr ? m.name() + layer->shape_text() : m.name();
}

void SynchronizedBatchNormBase::on_data_parallel_replicate(
    callback_context& context, std::int64_t copy_id) {
  const auto* scope = replication_scope::current();
  if (scope == nullptr)
    throw error{errc::invalid_argument,
                layer_text(kind(), context.path())
                    + ": expected a replication callback by "
                      "DataParallelWithCallback, patch_replication_callback, "
                      "synchronize, lead_copies or follow_copies, got one by "
                      "another caller, as execute_replication_callbacks is"};
  if (seat_)
    throw error{errc::duplicate_identifier,
                layer_text(kind(), context.path())
                    + ": the replication callback ran twice on copy "
                    + std::to_string(copy_id) + "; release_replicas first"};
  seat_ = make_seat(*scope, context, copy_id, kind());
}

SynchronizedBatchNormBase::~SynchronizedBatchNormBase() {
  if (seat_)
    seat_->leave();
}

void SynchronizedBatchNormBase::on_data_parallel_release() {
  if (auto seat = std::exchange(seat_, nullptr))
    seat->leave();
}

void SynchronizedBatchNormBase::on_data_parallel_failure(
    const std::string& why) {
  if (seat_)
    seat_->give_up(why);
}

std::uint64_t SynchronizedBatchNormBase::messages_sent() const noexcept {
  return seat_ ? seat_->messages_sent() : 0;
}

} // namespace syncnorm::nn
