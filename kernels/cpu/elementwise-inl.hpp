// The walk of an operation that maps elements to elements, with constants that
// belong to the channel: normalize and backward_input.
//
// An `Operation` has:
//   element, real      the type in memory and of calculation
//   inputs             how many tensors are read
//   constants          how many constants a channel has
//   constants_of(c, out)           sets them
//   cursor             where in the tensors a run of elements starts
//   line(g, j)         the cursor of plane or row j of group g
//   output(at)         the memory that is written to first, for alignment
//   upcoming           elements from what is read to what is prefetched for
//                      the caller meanwhile, if the output goes past the
//                      caches; 0: nothing else
//   fetch<Inputs, Output>(at, i, n)      prefetches the elements [i, i + n)
//                      from `at` on
//   run                the state that lasts for one line: made from its
//                      cursor, with a `finish()`
//   apply<Access>(d, at, i, n, k, run)  processes the elements [i, i + n)
//                      from `at` on with constants k

#if defined(SYNCNORM_CPU_ELEMENTWISE_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef SYNCNORM_CPU_ELEMENTWISE_INL_HPP
#undef SYNCNORM_CPU_ELEMENTWISE_INL_HPP
#else
#define SYNCNORM_CPU_ELEMENTWISE_INL_HPP
#endif

#include "kernels/cpu/elementwise_plan.hpp"
#include "kernels/cpu/parallel.hpp"
#include "kernels/cpu/simd-inl.hpp"

#include <hwy/cache_control.h>

HWY_BEFORE_NAMESPACE();

namespace syncnorm::cpu::HWY_NAMESPACE {

/// Whether outputs go past the caches, and how memory is prefetched then.
template <class Cpu, bool Streamed>
struct traffic {
  static constexpr bool streamed = Streamed;

  /// For `inputs` tensors, constants in registers.
  static constexpr fetching of(int inputs) {
    if (!streamed)
      return Cpu::cached;
    return inputs == 1 ? Cpu::streamed : Cpu::streamed_pair;
  }

  /// For rows whose constants stay in memory.
  static constexpr fetching of_rows(int inputs) {
    if (!streamed)
      return Cpu::cached;
    return inputs == 1 ? Cpu::streamed_rows : Cpu::streamed_row_pair;
  }
};

/// Prefetches what an operation reads and, unless the output goes past the
/// caches, what it writes.
template <class Traffic, fetch_into Where, class Operation>
HWY_INLINE void fetch_ahead(const Operation& operation,
                            const typename Operation::cursor& at,
                            std::int64_t i, std::int64_t n) {
  constexpr auto output = Traffic::streamed ? fetch_into::nowhere : Where;
  operation.template fetch<Where, output>(at, i, n);
}

/// How a run of elements is read and written.
enum class access {
  /// A whole vector.
  whole,
  /// A whole vector, whose output is aligned and goes past the caches.
  streamed,
  /// The first elements of a vector.
  some,
};

template <access Access, class D, class T>
HWY_INLINE hn::Vec<D> load_as(D d, const T* p, std::size_t n) {
  if constexpr (Access == access::some)
    return load_first(d, p, n);
  else
    return load(d, p);
}

template <access Access, class D, class T>
HWY_INLINE void store_as(D d, hn::Vec<D> v, T* p, std::size_t n) {
  if constexpr (Access == access::some)
    store_first(d, v, p, n);
  else if constexpr (Access == access::streamed)
    stream(d, v, p);
  else
    store(d, v, p);
}

// The constants of a line: `vectors` vectors of elements have constants of
// their own, which then repeat; if not `lasting`, they are loaded anew for each
// vector.

/// The constants of one channel for all elements of a line.
template <class Operation>
struct plane_constants {
  using real = typename Operation::real;

  static constexpr int vectors = 1;
  static constexpr bool lasting = true;

  plane_constants(const Operation& operation, std::int64_t c) {
    operation.constants_of(c, values);
  }

  HWY_INLINE void load(tag<real> d, std::int64_t,
                       vec<real> (&k)[Operation::constants]) const {
    for (int j = 0; j < Operation::constants; ++j)
      k[j] = hn::Set(d, values[j]);
  }

  real values[Operation::constants];
};

/// The constants of neighbouring channels, element by element.
template <class Operation>
struct row_constants {
  using real = typename Operation::real;

  static constexpr int vectors = 1;
  static constexpr bool lasting = false;
  static constexpr std::int64_t columns = row_tile_bytes / sizeof(real);
  static constexpr std::int64_t vector_columns = 64 / sizeof(real);

  row_constants(const Operation& operation, const row_tile& tile) {
    for (std::int64_t i = 0; i < tile.channels; ++i) {
      real one[Operation::constants];
      operation.constants_of(tile.first + i, one);
      for (int j = 0; j < Operation::constants; ++j)
        values[j][i] = one[j];
    }
    // Enough that a vector may begin at any of the tile's columns.
    auto end = tile.fold * tile.channels + vector_columns;
    for (auto& row : values)
      for (auto i = tile.channels; i < end; ++i)
        row[i] = row[i - tile.channels];
  }

  HWY_INLINE void load(tag<real> d, std::int64_t i,
                       vec<real> (&k)[Operation::constants]) const {
    for (int j = 0; j < Operation::constants; ++j)
      k[j] = hn::LoadU(d, values[j] + i);
  }

  alignas(64) real values[Operation::constants][columns + vector_columns];
};

/// Vectors that one row, or several together, fill for `narrow_constants`.
inline constexpr int narrow_vectors = 4;

/// The constants of such rows: they stay in registers from row to row.
template <class Operation>
struct narrow_constants {
  using real = typename Operation::real;

  static constexpr int vectors = narrow_vectors;
  static constexpr bool lasting = true;

  HWY_INLINE void load(tag<real> d, std::int64_t i,
                       vec<real> (&k)[Operation::constants]) const {
    all.load(d, i, k);
  }

  const row_constants<Operation>& all;
};

/// Whether there are registers for such constants, and they pay: where memory
/// is the limit and two tensors are read through the second level, they are
/// slower.
template <class Traffic, class Operation>
inline constexpr bool
    has_narrow_rows = HWY_TARGET <= HWY_AVX3
                      && (!Traffic::streamed || Operation::inputs == 1
                          || Traffic::of(2).where != fetch_into::second_level
                          || sizeof(typename Operation::element)
                                 < sizeof(typename Operation::real));

/// Processes the n elements from `at` on. Memory goes on for `left` elements
/// there, then at `next`.
template <class Traffic, class Operation, class Constants>
HWY_INLINE void do_line(const Operation& operation,
                        typename Operation::cursor at, std::int64_t n,
                        const Constants& constants, std::int64_t left,
                        typename Operation::cursor next) {
  using real = typename Operation::real;
  using cursor = typename Operation::cursor;
  tag<real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  constexpr int vectors = Constants::vectors;
  vec<real> k[vectors][Operation::constants];
  for (int v = 0; Constants::lasting && v < vectors; ++v)
    constants.load(d, v * lanes, k[v]);
  typename Operation::run run{operation, at};
  std::int64_t i = 0;
  if constexpr (Traffic::streamed) {
    i = elements_to_boundary(operation.output(at), lanes, n);
    if (i > 0) {
      constants.load(d, 0, k[0]);
      operation.template apply<access::some>(d, at, 0, std::size_t(i), k[0],
                                             run);
    }
  }
  constexpr auto whole = Traffic::streamed ? access::streamed : access::whole;
  constexpr auto ask = Constants::lasting ? Traffic::of(Operation::inputs)
                                          : Traffic::of_rows(Operation::inputs);
  auto do_until = [&](std::int64_t end, cursor ahead) HWY_ATTR {
    for (; i + vectors * lanes <= end; i += vectors * lanes)
      for (int v = 0; v < vectors; ++v) {
        auto j = i + v * lanes;
        fetch_ahead<Traffic, ask.where>(operation, ahead, j, lanes);
        if constexpr (!Constants::lasting)
          constants.load(d, j, k[v]);
        operation.template apply<whole>(d, at, j, std::size_t(lanes), k[v],
                                        run);
      }
  };
  auto offset = ask.distance + (Traffic::streamed ? operation.upcoming : 0);
  do_until(std::min(n, left - ask.distance), at + offset);
  do_until(n, next + (offset - left));
  if (i < n) {
    constants.load(d, i, k[0]);
    operation.template apply<access::some>(d, at, i, std::size_t(n - i), k[0],
                                           run);
  }
  run.finish();
}

template <class Traffic, class Operation>
void do_planes(const Operation& operation, const walk& w,
               const line_block& planes) {
  auto next =
      operation.line(planes.next / w.channels, planes.next % w.channels);
  for (auto i = planes.begin; i < planes.end;) {
    // The planes of one group follow each other.
    auto g = i / w.channels;
    auto end = std::min((g + 1) * w.channels, planes.end);
    auto ahead = end < planes.end ? operation.line(g + 1, 0) : next;
    for (auto c = i - g * w.channels; i < end; ++i, ++c) {
      plane_constants<Operation> constants{operation, c};
      do_line<Traffic>(operation, operation.line(g, c), w.inner, constants,
                       (end - i) * w.inner, ahead);
    }
  }
}

/// Processes rows one by one: of some channels, or with gaps between them.
template <class Traffic, class Operation>
void do_rows(const Operation& operation, const walk& w, const row_tile& tile,
             const row_constants<Operation>& constants,
             const line_block& rows) {
  auto line = [&](std::int64_t g, std::int64_t row) {
    return operation.line(g, row) + tile.first;
  };
  auto next = line(rows.next / w.inner, rows.next % w.inner);
  for (auto i = rows.begin; i < rows.end;) {
    auto g = i / w.inner;
    auto end = std::min((g + 1) * w.inner, rows.end);
    for (; i < end; ++i) {
      auto row = i - g * w.inner;
      auto ahead = i + 1 < rows.end ? line(g, row + 1) : next;
      do_line<Traffic>(operation, line(g, row), tile.channels, constants,
                       tile.channels, ahead);
    }
  }
}

/// Processes n elements of rows that follow each other without gaps, as one
/// line: vectors reach from row to row. The constants repeat after `period`
/// elements, and memory goes on at `next`.
template <class Traffic, class Operation>
HWY_INLINE void
do_dense_line(const Operation& operation, typename Operation::cursor at,
              std::int64_t n, const row_constants<Operation>& constants,
              std::int64_t period, typename Operation::cursor next) {
  using cursor = typename Operation::cursor;
  tag<typename Operation::real> d;
  auto lanes = std::int64_t(hn::Lanes(d));
  vec<typename Operation::real> k[Operation::constants];
  typename Operation::run run{operation, at};
  auto do_some = [&](auto first, auto count, auto column) HWY_ATTR {
    constants.load(d, column, k);
    operation.template apply<access::some>(d, at, first, std::size_t(count), k,
                                           run);
  };
  std::int64_t i = 0;
  if constexpr (Traffic::streamed) {
    i = elements_to_boundary(operation.output(at), lanes, n);
    if (i > 0)
      do_some(0, i, 0);
  }
  constexpr auto whole = Traffic::streamed ? access::streamed : access::whole;
  constexpr auto ask = Traffic::of_rows(Operation::inputs);
  auto column = i;
  auto do_until = [&](std::int64_t end, cursor ahead) HWY_ATTR {
    while (i + lanes <= end) {
      auto shift = column - i;
      auto last = std::min(end - lanes, period - 1 - shift);
      for (; i <= last; i += lanes) {
        fetch_ahead<Traffic, ask.where>(operation, ahead, i, lanes);
        constants.load(d, i + shift, k);
        operation.template apply<whole>(d, at, i, std::size_t(lanes), k, run);
      }
      column = i + shift;
      if (column >= period)
        column -= period;
    }
  };
  auto offset = ask.distance + (Traffic::streamed ? operation.upcoming : 0);
  do_until(n - ask.distance, at + offset);
  do_until(n, next + (offset - n));
  if (i < n)
    do_some(i, n - i, column);
  run.finish();
}

/// Processes rows of all channels that follow each other without gaps. Not
/// inlined: the loops of `do_rows` and these would take registers from each
/// other.
template <class Traffic, class Operation>
HWY_NOINLINE void do_dense_rows(const Operation& operation, const walk& w,
                                const row_tile& tile,
                                const row_constants<Operation>& constants,
                                const line_block& rows) {
  auto next = operation.line(rows.next / w.inner, rows.next % w.inner);
  for (auto i = rows.begin; i < rows.end;) {
    auto g = i / w.inner;
    auto end = std::min((g + 1) * w.inner, rows.end);
    auto ahead = end < rows.end ? operation.line(g + 1, 0) : next;
    do_dense_line<Traffic>(operation, operation.line(g, i - g * w.inner),
                           (end - i) * w.channels, constants,
                           tile.fold * w.channels, ahead);
    i = end;
  }
}

/// Processes rows if they are narrow and follow each other without gaps.
/// Returns whether they are.
template <class Traffic, class Operation>
bool do_narrow_rows(const Operation& operation, const walk& w,
                    const row_constants<Operation>& constants,
                    const line_block& rows) {
  if constexpr (has_narrow_rows<Traffic, Operation>) {
    auto lanes = std::int64_t(hn::Lanes(tag<typename Operation::real>{}));
    auto columns = narrow_vectors * lanes;
    auto n = (rows.end - rows.begin) * w.channels;
    auto at = operation.line(0, rows.begin);
    if (w.groups != 1 || !w.dense_rows || columns % w.channels != 0
        || n % columns != 0
        || (Traffic::streamed
            && elements_to_boundary(operation.output(at), lanes, n)))
      return false;
    do_line<Traffic>(operation, at, n, narrow_constants<Operation>{constants},
                     n, operation.line(0, rows.next));
    return true;
  }
  return false;
}

/// How many lines of `length` elements a block has, a multiple of `fold`;
/// output that goes past the caches is one block.
template <class Traffic, class Operation>
std::int64_t block_size(const walk& w, std::int64_t length, std::int64_t fold) {
  constexpr auto bytes = std::int64_t(sizeof(typename Operation::element));
  if constexpr (Traffic::streamed)
    return w.size();
  else
    return lines_of_block(length * bytes, w.size() * bytes, fold);
}

template <class Traffic, class Operation>
void do_all_planes(const Operation& operation, const walk& w,
                   std::int64_t first, std::int64_t last) {
  auto size = block_size<Traffic, Operation>(w, w.inner, 1);
  for_blocks_from_end(first, last, size, [&](const line_block& planes) {
    do_planes<Traffic>(operation, w, planes);
  });
}

template <class Traffic, class Operation>
void do_all_rows(const Operation& operation, const walk& w, std::int64_t first,
                 std::int64_t last) {
  row_tiles<typename Operation::real> tiles{w};
  for (std::int64_t t = 0; t < tiles.size(); ++t) {
    auto tile = tiles[t];
    row_constants<Operation> constants{operation, tile};
    auto size = block_size<Traffic, Operation>(w, w.channels, tile.fold);
    for_blocks_from_end(first, last, size, [&](const line_block& rows) {
      if (do_narrow_rows<Traffic>(operation, w, constants, rows))
        return;
      if (w.dense_rows && tile.channels == w.channels)
        return do_dense_rows<Traffic>(operation, w, tile, constants, rows);
      do_rows<Traffic>(operation, w, tile, constants, rows);
    });
  }
}

template <class Traffic, class Operation>
void do_lines(const execution& run, const Operation& operation, const walk& w,
              std::int64_t grain) {
  auto lines = w.rows ? w.per_channel() : w.groups * w.channels;
  auto tasks = (lines + grain - 1) / grain;
  for_ranges(run, tasks, [&](std::int64_t first, std::int64_t last) {
    auto begin = first * grain;
    auto end = std::min(last * grain, lines);
    if (w.rows)
      do_all_rows<Traffic>(operation, w, begin, end);
    else
      do_all_planes<Traffic>(operation, w, begin, end);
    if constexpr (Traffic::streamed)
      hwy::FlushStream();
  });
}

/// @param streamed  the output does not fit into the caches.
/// @param grain     the least number of lines that stay together.
template <class Operation>
void do_elements(const execution& run, const Operation& operation,
                 const walk& w, bool streamed, std::int64_t grain) {
  auto as = [&]<class Cpu>(Cpu) {
    if (streamed)
      do_lines<traffic<Cpu, true>>(run, operation, w, grain);
    else
      do_lines<traffic<Cpu, false>>(run, operation, w, grain);
  };
  // Upcoming elements belong in the second level, on all CPUs.
  if (streamed && operation.upcoming != 0)
    as(any_cpu{});
  else
    with_fetching<typename Operation::element>(as);
}

} // namespace syncnorm::cpu::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
