#include "syncnorm/device_array.hpp"

#include "kernels/validate.hpp"
#include "syncnorm/error.hpp"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

namespace syncnorm {

namespace {

const device_stream& require_stream(const char* call,
                                    const device_stream& stream) {
  if (!stream)
    fail(errc::invalid_argument, call, "stream", "a stream", "none");
  return stream;
}

void require_array(const char* call, const device_array& array) {
  if (array.data() == nullptr)
    fail(errc::invalid_argument, call, "array", "an array", "none");
}

} // namespace

// -- events and streams -------------------------------------------------------

struct device_stream::state {
  device_runtime* runtime = nullptr;
  execution run;
  bool made = false;

  ~state() {
    if (made)
      runtime->end_stream(run.where, run.stream);
  }
};

struct device_event::state {
  device_runtime* runtime = nullptr;
  device where;
  void* event = nullptr;

  ~state() {
    if (event != nullptr)
      runtime->end_event(where, event);
  }
};

bool device_event::has_passed() const {
  return !state_ || state_->runtime->has_passed(state_->where, state_->event);
}

void device_event::synchronize() const {
  if (state_)
    state_->runtime->synchronize(state_->where, state_->event);
}

device_stream device_stream::make(device_runtime& runtime,
                                  const device& where) {
  runtime.require(where);
  // First, because a stream that nothing holds would never be destroyed.
  auto made = std::make_shared<state>();
  made->runtime = &runtime;
  made->run = {where, runtime.make_stream(where), nullptr};
  made->made = true;
  device_stream result;
  result.state_ = std::move(made);
  return result;
}

device_stream device_stream::borrow(device_runtime& runtime,
                                    const device& where, void* stream) {
  runtime.require(where);
  device_stream result;
  result.state_.reset(new state{&runtime, {where, stream, nullptr}, false});
  return result;
}

device_runtime& device_stream::runtime() const noexcept {
  return *state_->runtime;
}

const device& device_stream::where() const noexcept {
  return state_->run.where;
}

const execution& device_stream::run() const noexcept {
  return state_->run;
}

device_event device_stream::record() const {
  require_stream("device_stream::record", *this);
  // First, because an event that nothing holds would never be destroyed.
  auto made = std::make_shared<device_event::state>();
  made->runtime = &runtime();
  made->where = where();
  made->event = runtime().make_event(where());
  runtime().record(run(), made->event);
  device_event result;
  result.state_ = std::move(made);
  return result;
}

void device_stream::wait_for(const device_event& event) const {
  if (!event.state_)
    return;
  require_stream("device_stream::wait_for", *this);
  runtime().wait(run(), event.state_->event);
}

bool operator==(const device_stream& a, const device_stream& b) noexcept {
  if (!a.state_ || !b.state_)
    return a.state_ == b.state_;
  return a.state_->run.stream == b.state_->run.stream
         && a.state_->run.where == b.state_->run.where
         && a.state_->runtime == b.state_->runtime;
}

// -- memory -------------------------------------------------------------------

pinned_memory::pinned_memory(const device_stream& stream, std::size_t bytes)
    : bytes_{bytes},
      data_{require_stream("pinned_memory", stream)
                .runtime()
                .allocate_pinned(stream.where(), bytes),
            [runtime = &stream.runtime(), where = stream.where()](
                void* memory) { runtime->release_pinned(where, memory); }} {}

struct device_array::block {
  device_stream stream;
  dtype type = dtype::float32;
  void* data = nullptr;
  device_event ready;
  /// A reader whose end nobody knows may still need it.
  std::atomic<bool> is_kept = false;

  ~block() {
    if (data != nullptr && !is_kept)
      stream.runtime().release(stream.run(), data);
  }
};

device_array::device_array(const device_stream& stream, dtype type,
                           std::size_t size)
    : block_{std::make_shared<block>()},
      size_{size} {
  block_->stream = require_stream("device_array", stream);
  block_->type = type;
  // A kernel's arguments are not null, even for an empty array.
  auto bytes = std::max<std::size_t>(size, 1) * size_of(type);
  block_->data = stream.runtime().allocate(stream.run(), bytes);
}

void device_array::publish() {
  require_array("device_array::publish", *this);
  block_->ready = block_->stream.record();
}

std::size_t device_array::size() const noexcept {
  return block_ ? size_ : 0;
}

std::size_t device_array::bytes() const noexcept {
  return size() * size_of(type());
}

dtype device_array::type() const noexcept {
  return block_ ? block_->type : dtype::float32;
}

void* device_array::data() const noexcept {
  return at(0);
}

void* device_array::at(std::size_t i) const noexcept {
  if (!block_)
    return nullptr;
  return static_cast<std::byte*>(block_->data)
         + (first_ + i) * size_of(block_->type);
}

device_array device_array::part(std::size_t first, std::size_t size) const {
  auto all = this->size();
  if (first > all || size > all - first)
    fail(errc::invalid_argument, "device_array::part", "size",
         std::to_string(all) + " elements or fewer in all",
         std::to_string(size) + " from " + std::to_string(first) + " on");
  auto result = *this;
  result.first_ += first;
  result.size_ = size;
  return result;
}

const device_stream& device_array::stream() const noexcept {
  static const device_stream none;
  return block_ ? block_->stream : none;
}

device_reading device_array::read_on(const device_stream& reader) const {
  if (!block_)
    return {};
  require_stream("device_array::read_on", reader);
  if (!(reader == block_->stream))
    reader.wait_for(block_->ready);
  return {*this, reader};
}

device_array device_array::on_device_of(const device_stream& to) const {
  if (!block_)
    return *this;
  require_stream("device_array::on_device_of", to);
  if (block_->stream.where() == to.where())
    return *this;
  device_array result{to, type(), size()};
  auto source = read_on(to);
  to.runtime().copy(to.run(), result.data(), to.where(), source.data(),
                    block_->stream.where(), bytes());
  result.publish();
  return result;
}

void device_array::copy_to(const pinned_memory& host) const {
  require_array("device_array::copy_to", *this);
  const auto& stream = block_->stream;
  if (host.bytes() < bytes())
    throw error{errc::workspace_too_small,
                "device_array::copy_to: host: expected "
                    + std::to_string(bytes()) + " bytes or more, got "
                    + std::to_string(host.bytes())};
  stream.runtime().copy(stream.run(), host.data(), {}, data(), stream.where(),
                        bytes());
}

device_reading::device_reading(device_array array, device_stream reader)
    : array_{std::move(array)},
      reader_{std::move(reader)} {}

device_reading::~device_reading() {
  if (!array_.block_ || reader_ == array_.stream())
    return;
  try {
    array_.stream().wait_for(reader_.record());
  } catch (...) {
    // The device is lost, and its memory with it, or there is no memory for an
    // event; a destructor has nobody to tell.
    array_.block_->is_kept = true;
  }
}

} // namespace syncnorm
