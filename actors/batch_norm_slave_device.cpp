// What a slave actor does differently if its copy is on a device: it waits for
// the stream.

#include "batch_norm_slave.hpp"
#include "kept_memory.hpp"

#include "syncnorm/error.hpp"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

namespace syncnorm::detail {

void batch_norm_slave::contribute_from_host() {
  auto copy = std::make_shared<host_message>(sent_, std::exchange(pinned_, {}));
  ends_->when_done(copy->work(), [this, copy](const caf::error& reason) {
    if (reason == caf::none)
      contribute(copy->finish(pinned_));
    else
      stop(reason);
  });
}

// -- tensors in host memory ---------------------------------------------------

way_back batch_norm_slave::bring_here(shared_tensor& x) {
  if (!on_device() || x.view().where().type != device_type::cpu)
    return {};
  x = staging_->to_device(replica_->stream(), x);
  return {.to_host = true};
}

std::shared_ptr<const void>
batch_norm_slave::send_back(const tensor_memory& y, way_back& back,
                            std::shared_ptr<const void> keep) {
  if (!back.to_host)
    return keep;
  staging_->to_host(replica_->stream(), y.view(), pool_, back);
  return std::make_shared<
      const std::pair<std::shared_ptr<const void>, pinned_memory>>(
      std::move(keep), back.copy);
}

shared_tensor batch_norm_slave::answer_of(const tensor_memory& y,
                                          way_back& back) {
  return back.to_host ? staging_->arrived(back) : y.share();
}

shared_tensor batch_norm_slave::answer_of(forward_job& x, std::size_t i) {
  return on_device() ? answer_of(x.ys[i], x.backs[i]) : x.ys[i].share();
}

// -- the end of the stream's work ---------------------------------------------

std::shared_ptr<const void>
batch_norm_slave::hold(std::vector<shared_tensor> tensors) const {
  if (!on_device())
    return nullptr;
  return std::make_shared<const std::vector<shared_tensor>>(std::move(tensors));
}

std::shared_ptr<const void> batch_norm_slave::hold(const forward_job& x) const {
  if (!on_device())
    return nullptr;
  auto tensors = x.xs;
  for (const auto& y : x.ys)
    tensors.push_back(y.share());
  return hold(std::move(tensors));
}

void batch_norm_slave::keep_until_done(std::shared_ptr<const void> memory) {
  if (!memory)
    return;
  try {
    kept_memory mine{memory};
    ends_->keep({replica_->stream().record(), std::move(memory)});
    mine.let_go();
  } catch (...) {
    // The device is lost, or there is no memory for an event: nobody learns
    // when the work is done.
  }
}

void batch_norm_slave::when_done(std::shared_ptr<const void> keep,
                                 stream_ends::on_end then) {
  if (!on_device())
    return then({});
  ends_->when_done({replica_->stream().record(), std::move(keep)},
                   std::move(then));
}

void batch_norm_slave::work_failed(std::uint64_t work,
                                   const caf::error& reason) {
  auto text = fmt::format("layer {}: replica {}: {}", replica_->options().name,
                          role_.copy_id, text_of(reason));
  auto why = make_error(code_of(reason).value_or(errc::device_failure), text);
  if (current_)
    overtaken_ = why;
  ends_->end_from(work, why);
  give_up(text);
}

// -- what was learned ---------------------------------------------------------

void batch_norm_slave::remember(std::optional<learned_statistics>& before) {
  if (on_device())
    before = replica_->learned();
}

} // namespace syncnorm::detail
