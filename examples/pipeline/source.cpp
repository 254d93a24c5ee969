#include "source.hpp"

#include <syncnorm/compat.hpp>
#include <syncnorm/error.hpp>

#include <algorithm>
#include <array>
#include <new>
#include <string>
#include <utility>

namespace pipeline {

source::source(caf::actor_config& config, std::shared_ptr<record_reader> reader,
               source_options options)
    : source_actor::base{config},
      reader_{std::move(reader)},
      options_{options} {}

// A ring of handles, from source to sink and back, would keep all actors alive.
void source::on_exit() {
  next_ = nullptr;
}

// begin: credit
source::behavior_type source::make_behavior() {
  return {
      [this](start_atom, const caf::actor& next) {
        next_ = caf::actor_cast<stage_actor>(next);
        produce();
      },
      [this](credit_atom) {
        --on_their_way_;
        produce();
      },
      [this](stop_atom, const std::string& why) { finish(why); },
  };
}

void source::produce() {
  while (!ended_ && on_their_way_ < options_.in_flight) {
    auto next = read_batch();
    if (next.parts.empty())
      return;
    ++on_their_way_;
    ++totals_.batches;
    totals_.peak_in_flight = std::max(totals_.peak_in_flight, on_their_way_);
    syncnorm::compat::send(this, next_, batch_atom_v, std::move(next));
    // What was read before a refused record still goes out.
    if (!totals_.failure.empty())
      finish({});
  }
}
// end: credit

batch source::read_batch() {
  try {
    return fill_batch();
  } catch (const std::bad_alloc&) {
    finish("--batch: no memory for " + std::to_string(options_.batch_size)
           + " records of " + std::to_string(reader_->features()) + " numbers");
  } catch (const syncnorm::error& x) {
    finish(std::string{"--batch: "} + x.what());
  }
  return {};
}

batch source::fill_batch() {
  // begin: memory
  std::array sizes{options_.batch_size, reader_->features()};
  auto layout = syncnorm::make_layout(syncnorm::dtype::float32, sizes);
  auto memory = pool_.take(layout);
  // end: memory
  auto* row = static_cast<float*>(memory.view().data());
  auto width = static_cast<std::size_t>(reader_->features());
  std::int64_t records = 0;
  try {
    while (records < options_.batch_size && reader_->next({row, width})) {
      row += width;
      ++records;
    }
  } catch (const std::exception& x) {
    totals_.fail(x.what());
  }
  if (records == 0) {
    // A failed stage reports that itself.
    if (reader_->stop()->raised() != stop_signal::reason::failed)
      finish({});
    return {};
  }
  return {totals_.batches, {memory.share().samples(0, records)}};
}

void source::finish(const std::string& failure) {
  if (std::exchange(ended_, true))
    return;
  if (!failure.empty())
    totals_.fail(failure);
  totals_.records = reader_->counts();
  syncnorm::compat::send(this, next_, end_atom_v, totals_);
}

} // namespace pipeline
