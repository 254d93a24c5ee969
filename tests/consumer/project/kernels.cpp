#include <syncnorm/moments.hpp>

#include <array>
#include <cstdlib>
#include <vector>

int main() {
  std::array<std::int64_t, 2> sizes{4, 1};
  std::array<double, 4> values{1, 2, 3, 4};
  auto layout = syncnorm::make_layout(syncnorm::dtype::float64, sizes);
  double mean = 0;
  double m2 = 0;
  syncnorm::moments_view out{0, &mean, &m2, 1, syncnorm::dtype::float64, {}};
  std::vector<std::max_align_t> scratch(
      syncnorm::batch_moments_workspace(layout) / sizeof(std::max_align_t) + 1);
  syncnorm::batch_moments(
      {}, {values.data(), layout}, out,
      {scratch.data(), scratch.size() * sizeof(std::max_align_t)});
  return out.count == 4 && mean == 2.5 && m2 == 5.0 ? EXIT_SUCCESS
                                                    : EXIT_FAILURE;
}
