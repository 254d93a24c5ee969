// For ThreadSanitizer only. A packaged libcaf_core is not instrumented, so the
// sanitizer cannot see that CAF hands messages and actors over in order, and
// would call every message a race. This file stands before the few functions
// of CAF 0.17 in which a hand-over happens, tells the sanitizer what CAF
// guarantees there, and calls the original. Races in this library's own code
// stay visible.

#include <caf/actor_control_block.hpp>

#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

namespace {

/// The function of that mangled name in the library behind this file.
template <class F>
F original(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
}

void hand_over(void* what) {
  __tsan_release(what);
}

void take_over(void* what) {
  __tsan_acquire(what);
}

} // namespace

// The parameters are pointers as the ABI passes them: a unique_ptr by the
// address of the caller's copy, `this` first.

#define SYNCNORM_ENQUEUE(symbol, name)                                         \
  extern "C" bool symbol(void* self, void** message, void* where) asm(name);   \
  extern "C" bool symbol(void* self, void** message, void* where) {            \
    static auto next = original<bool (*)(void*, void**, void*)>(name);         \
    hand_over(*message);                                                       \
    return next(self, message, where);                                         \
  }

SYNCNORM_ENQUEUE(scheduled_enqueue,
                 "_ZN3caf15scheduled_actor7enqueueESt10unique_ptrINS_15mailbox_"
                 "elementENS_6detail8disposerEEPNS_14execution_unitE")
SYNCNORM_ENQUEUE(blocking_enqueue,
                 "_ZN3caf14blocking_actor7enqueueESt10unique_ptrINS_15mailbox_"
                 "elementENS_6detail8disposerEEPNS_14execution_unitE")

// A new actor is handed to whoever runs it first.
#define SYNCNORM_LAUNCH                                                        \
  "_ZN3caf15scheduled_actor6launchEPNS_14execution_unitEbb"
extern "C" void launch(void* self, void* where, bool lazy,
                       bool hide) asm(SYNCNORM_LAUNCH);
extern "C" void launch(void* self, void* where, bool lazy, bool hide) {
  static auto next =
      original<void (*)(void*, void*, bool, bool)>(SYNCNORM_LAUNCH);
  hand_over(self);
  next(self, where, lazy, hide);
}

// Whoever runs an actor comes after everybody who ran it before.
#define SYNCNORM_ACTIVATE                                                      \
  "_ZN3caf15scheduled_actor8activateEPNS_14execution_unitE"
extern "C" bool activate(void* self, void* where) asm(SYNCNORM_ACTIVATE);
extern "C" bool activate(void* self, void* where) {
  static auto next = original<bool (*)(void*, void*)>(SYNCNORM_ACTIVATE);
  take_over(self);
  auto result = next(self, where);
  hand_over(self);
  return result;
}

// A message is handled after it was sent.
#define SYNCNORM_REACTIVATE                                                    \
  "_ZN3caf15scheduled_actor10reactivateERNS_15mailbox_elementE"
extern "C" int reactivate(void* self, void* message) asm(SYNCNORM_REACTIVATE);
extern "C" int reactivate(void* self, void* message) {
  static auto next = original<int (*)(void*, void*)>(SYNCNORM_REACTIVATE);
  take_over(self);
  take_over(message);
  auto result = next(self, message);
  hand_over(self);
  return result;
}

// A message is destroyed after it was sent, also one that nobody handled: an
// actor that ends drops what is still in its mailbox.
#define SYNCNORM_DELETION "_ZNK3caf14memory_managed16request_deletionEb"
extern "C" void request_deletion(const void* self,
                                 bool decremented) asm(SYNCNORM_DELETION);
extern "C" void request_deletion(const void* self, bool decremented) {
  static auto next = original<void (*)(const void*, bool)>(SYNCNORM_DELETION);
  take_over(const_cast<void*>(self));
  next(self, decremented);
}

#define SYNCNORM_VISIT                                                         \
  "_ZN3caf14blocking_actor15mailbox_visitorclERNS_15mailbox_elementE"
extern "C" int visit(void* visitor, void* message) asm(SYNCNORM_VISIT);
extern "C" int visit(void* visitor, void* message) {
  static auto next = original<int (*)(void*, void*)>(SYNCNORM_VISIT);
  take_over(message);
  return next(visitor, message);
}

// The logger's thread reads a line after it was written. The ring between them
// locks only to sleep; its counters are out of the sanitizer's sight.
#define SYNCNORM_LOG "_ZN3caf6logger3logEONS0_5eventE"
extern "C" void write_log(void* self, void* line) asm(SYNCNORM_LOG);
extern "C" void write_log(void* self, void* line) {
  static auto next = original<void (*)(void*, void*)>(SYNCNORM_LOG);
  hand_over(self);
  next(self, line);
}

#define SYNCNORM_HANDLE_LINE "_ZN3caf6logger12handle_eventERKNS0_5eventE"
extern "C" void handle_line(void* self,
                            const void* line) asm(SYNCNORM_HANDLE_LINE);
extern "C" void handle_line(void* self, const void* line) {
  static auto next =
      original<void (*)(void*, const void*)>(SYNCNORM_HANDLE_LINE);
  take_over(self);
  next(self, line);
}

// The last reference destroys an actor after all who held one: CAF's own
// function once more, with a counter that the sanitizer sees.
#define SYNCNORM_RELEASE                                                       \
  "_ZN3caf21intrusive_ptr_releaseEPNS_19actor_control_blockE"
extern "C" void release(caf::actor_control_block* block) asm(SYNCNORM_RELEASE);
extern "C" void release(caf::actor_control_block* block) {
  if (block->strong_refs.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    take_over(block->get());
    block->data_dtor(block->get());
    caf::intrusive_ptr_release_weak(block);
  }
}
