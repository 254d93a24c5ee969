#include "syncnorm/moments.hpp"

#include "kernels/backend.hpp"
#include "kernels/validate.hpp"

#include <fmt/format.h>

#include <limits>
#include <string>
#include <utility>

namespace syncnorm {

namespace {

bool overlap(const const_moments_view& a, const const_moments_view& b) {
  for (const auto* p : {a.mean, a.m2})
    for (const auto* q : {b.mean, b.m2})
      if (overlap(p, q, a.channels, a.type))
        return true;
  return false;
}

/// Checks that `part` can be merged into `out`.
void check_part(const call_check& check, std::string_view name,
                const const_moments_view& part, const moments_view& out) {
  check.moments(name, part);
  if (part.channels != out.channels)
    check.fail(errc::shape_mismatch, name,
               fmt::format("the {} channels of out", out.channels),
               std::to_string(part.channels));
  if (part.type != out.type)
    check.fail(errc::dtype_mismatch, name,
               fmt::format("the dtype of out, {}", to_string(out.type)),
               to_string(part.type));
}

/// Checks all parts and returns the sum of their counts.
std::int64_t check_parts(const call_check& check,
                         std::span<const const_moments_view> parts,
                         const moments_view& out) {
  if (parts.empty())
    check.fail(errc::invalid_argument, "parts", "1 or more", "none");
  std::int64_t total = 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // fmt would take longer here than the merge of 64 channels.
    auto name = "parts[" + std::to_string(i) + "]";
    check_part(check, name, parts[i], out);
    if (parts[i].count > std::numeric_limits<std::int64_t>::max() - total)
      check.fail(errc::invalid_argument, name,
                 "counts of at most 2^63 - 1 in all",
                 fmt::format("{} more than {}", parts[i].count, total));
    total += parts[i].count;
    auto same = parts[i].mean == out.mean && parts[i].m2 == out.m2;
    if (parts[i].count != 0 && !(i == 0 && same) && overlap(parts[i], out))
      check.fail(errc::invalid_argument, name, "memory apart from out's",
                 "memory that overlaps it");
  }
  return total;
}

/// Checks that nothing `finalize_moments` writes overlaps something else that
/// it needs: `written` may be the memory that is read, but not shifted.
void check_finalized(const call_check& check, std::string_view argument,
                     const void* written, const const_moments_view& total,
                     const running_view& running) {
  check.array(argument, written, total.type);
  check.apart(argument, written, running, total.channels, total.type);
  if (total.count == 0)
    return;
  check.same_or_apart(argument, written, "total.mean", total.mean,
                      total.channels, total.type);
  check.same_or_apart(argument, written, "total.m2", total.m2, total.channels,
                      total.type);
}

/// As `check_finalized`, for the running statistics, if there are any.
void check_updated(const call_check& check, const const_moments_view& total,
                   const running_view& running) {
  if (running.mean == nullptr || total.count == 0)
    return;
  for (auto [argument, updated] : {std::pair{"running.mean", running.mean},
                                   {"running.var", running.var}}) {
    check.same_or_apart(argument, updated, "total.mean", total.mean,
                        total.channels, total.type);
    check.same_or_apart(argument, updated, "total.m2", total.m2, total.channels,
                        total.type);
  }
}

/// What `batch_moments` writes lies apart from what it reads, and its workspace
/// from its results.
void check_apart(const call_check& check, const const_tensor_view& x,
                 const moments_view& out, const workspace& scratch) {
  auto bytes = std::size_t(out.channels) * size_of(out.type);
  used_memory mean{"out.mean", out.mean, bytes};
  used_memory m2{"out.m2", out.m2, bytes};
  check.apart({{"scratch", scratch.data, scratch.bytes}, mean, m2},
              {used_memory::of("x", x)});
  check.apart({{"scratch", scratch.data, scratch.bytes}}, {mean, m2});
}

/// Checks `out`, whose count is not yet set, as moments to be written.
void check_out(const call_check& check, moments_view out) {
  out.count = 1;
  check.moments("out", out);
  check.apart("out.m2", out.m2, "out.mean", out.mean, out.channels, out.type);
}

} // namespace

std::size_t batch_moments_workspace(const tensor_layout& x) {
  check_layout("batch_moments_workspace", "x", x);
  if (x.where.type == device_type::cpu)
    return cpu::batch_moments_workspace(x);
  if constexpr (has_cuda)
    return cuda::batch_moments_workspace(x);
  fail_without_cuda("batch_moments_workspace", "x.where", x.where);
}

void batch_moments(const execution& run, const const_tensor_view& x,
                   moments_view& out, const workspace& scratch) {
  call_check check{"batch_moments", run};
  check.tensor("x", x);
  check_out(check, out);
  if (out.channels != x.shape().channels)
    check.fail(errc::shape_mismatch, "out",
               fmt::format("the {} channels of x", x.shape().channels),
               std::to_string(out.channels));
  auto type = statistics_type(x.type());
  if (out.type != dtype::float64 && out.type != type)
    check.fail(errc::dtype_mismatch, "out",
               type == dtype::float64 ? "float64" : "float32 or float64",
               to_string(out.type));
  check.scratch(scratch, x.empty() ? 0 : batch_moments_workspace(x.layout()));
  if (x.empty()) {
    out.count = 0;
    return;
  }
  check_apart(check, x, out, scratch);
  if (on_cpu(run))
    cpu::batch_moments(run, x, out, scratch);
  else if constexpr (has_cuda)
    cuda::batch_moments(run, x, out, scratch);
  out.count = x.shape().per_channel();
}

void merge_moments(const execution& run,
                   std::span<const const_moments_view> parts,
                   moments_view& out) {
  call_check check{"merge_moments", run};
  check_out(check, out);
  auto total = check_parts(check, parts, out);
  if (total != 0) {
    if (on_cpu(run))
      cpu::merge_moments(run, parts, out);
    else if constexpr (has_cuda)
      cuda::merge_moments(run, parts, out);
  }
  out.count = total;
}

void finalize_moments(const execution& run, const const_moments_view& total,
                      const finalize_options& options, void* mean,
                      void* inv_std, const running_view& running) {
  call_check check{"finalize_moments", run};
  check.moments("total", total);
  check.finalization(options);
  check.running("running", running, total.channels, total.type);
  check_finalized(check, "mean", mean, total, running);
  check_finalized(check, "inv_std", inv_std, total, running);
  check.apart("inv_std", inv_std, "mean", mean, total.channels, total.type);
  check_updated(check, total, running);
  if (on_cpu(run))
    cpu::finalize_moments(run, total, options, mean, inv_std, running);
  else if constexpr (has_cuda)
    cuda::finalize_moments(run, total, options, mean, inv_std, running);
}

} // namespace syncnorm
