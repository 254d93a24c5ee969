// A reduction of planes, and beside it an elementwise operation on others.
// While the reduction waits for memory, the operation works on what a cache
// holds, and writes past the caches, which memory can take while it is read.

#if defined(SYNCNORM_CPU_BESIDE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SYNCNORM_CPU_BESIDE_INL_HPP
#undef SYNCNORM_CPU_BESIDE_INL_HPP
#else
#define SYNCNORM_CPU_BESIDE_INL_HPP
#endif

#include "kernels/cpu/elementwise-inl.hpp"
#include "kernels/cpu/reduce-inl.hpp"

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

/// An elementwise operation on planes that is done in pieces.
template <class Operation>
class piecewise {
public:
  using real = typename Operation::real;

  explicit piecewise(const Operation& operation)
      : operation_{operation},
        constants_{operation, 0} {
    begin_plane();
  }

  /// Does the next n elements, more or less.
  HWY_INLINE void advance(std::int64_t n) {
    if (done_ + n >= operation_.w.inner)
      return end_plane();
    tag<real> d;
    auto lanes = std::int64_t(hn::Lanes(d));
    vec<real> k[Operation::constants];
    constants_.load(d, 0, k);
    for (auto end = done_ + n; done_ + lanes <= end; done_ += lanes)
      operation_.template apply<access::streamed>(d, at_, done_,
                                                  std::size_t(lanes), k, run_);
  }

  /// Does all that is left.
  void finish() {
    while (plane_ < planes())
      end_plane();
    hwy::FlushStream();
  }

private:
  [[nodiscard]] std::int64_t planes() const {
    return operation_.w.groups * operation_.w.channels;
  }

  /// Does the elements of a plane up to where the output is aligned.
  void begin_plane() {
    auto channels = operation_.w.channels;
    constants_ = {operation_, plane_ % channels};
    at_ = operation_.line(plane_ / channels, plane_ % channels);
    tag<real> d;
    done_ = elements_to_boundary(
        Operation::output(at_), std::int64_t(hn::Lanes(d)), operation_.w.inner);
    if (done_ == 0)
      return;
    vec<real> k[Operation::constants];
    constants_.load(d, 0, k);
    operation_.template apply<access::some>(d, at_, 0, std::size_t(done_), k,
                                            run_);
  }

  /// Does the rest of a plane and begins the next.
  HWY_NOINLINE void end_plane() {
    if (plane_ == planes())
      return;
    auto left = operation_.w.inner - done_;
    auto rest = at_ + done_;
    do_line<traffic<any_cpu, true>>(operation_, rest, left, constants_, left,
                                    rest);
    done_ = operation_.w.inner;
    if (++plane_ < planes())
      begin_plane();
  }

  const Operation& operation_;
  plane_constants<Operation> constants_;
  typename Operation::cursor at_ = operation_.line(0, 0);
  typename Operation::run run_{operation_, at_};
  std::int64_t plane_ = 0;
  /// Elements of the plane that are done.
  std::int64_t done_ = 0;
};

/// A reduction that does a piece of `other` each time that it prefetches.
template <class Reduction, class Operation>
struct accompanied : Reduction {
  /// Further ahead: more is done until the memory is needed.
  static constexpr fetching planes{Reduction::planes.where,
                                   2 * Reduction::planes.distance};

  piecewise<Operation>* other;

  template <fetch_into Where, class Cursor>
  HWY_INLINE void fetch(const Cursor& at, std::int64_t i,
                        std::int64_t n) const {
    Reduction::template fetch<Where>(at, i, n);
    other->advance(n);
  }
};

/// Reduces all slabs, in one thread, and does all of the operation.
template <class Reduction, class Operation>
void reduce_beside(const Reduction& r, const Operation& operation,
                   const walk& w, const reduce_plan& plan,
                   const slab_layout& layout, void* workspace) {
  piecewise<Operation> other{operation};
  reduce({}, accompanied<Reduction, Operation>{r, &other}, w, plan, layout,
         workspace);
  other.finish();
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
