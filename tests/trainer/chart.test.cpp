#include "trainer/output/chart.hpp"

#include "trainer/scratch_folder.hpp"

#include <doctest/doctest.h>

#include <cmath>

using namespace syncnorm::train;

TEST_CASE("a chart draws each series and leaves out what is not "
          "finite") {
  chart_series series{"a<b", {{1, 2}, {2, NAN}, {4, 8, 1}}};
  auto svg = render_svg({{"title", "x", "y", {series}, true}});
  CHECK(count(svg, "<polyline") == 1);
  CHECK(contains(svg, "a&lt;b"));
  CHECK_FALSE(contains(svg, "nan"));
  CHECK(svg.ends_with("</svg>\n"));
  // Two points are left of three, the first and the last of the
  // x axis.
  CHECK(contains(svg, "points=\"64.0,"));
  CHECK(contains(svg, "444.0,"));
  CHECK(render_svg({{"empty", "x", "y", {}}}).ends_with("</svg>\n"));
}

TEST_CASE("a chart shows a series of one point, which has no line") {
  chart_series one{"one", {{1, NAN}, {2, 5}}};
  chart_series two{"two", {{1, 4}, {2, 6}}};
  CHECK(count(render_svg({{"title", "x", "y", {one, two}}}), "<circle") == 1);
  CHECK(count(render_svg({{"title", "x", "y", {two}}}), "<circle") == 0);
}

TEST_CASE("a chart with powers of ten along y has 1, 10 and 100 at the same "
          "distances, and leaves out zero") {
  chart_panel panel{
      "title", "x", "y", {{"a", {{0, 1}, {1, 10}, {2, 0}, {3, 100}}}}};
  panel.log10_y = true;
  auto svg = render_svg({panel});
  CHECK(contains(svg, "64.0,272.0 190.7,154.0 444.0,36.0 "));
  for (const auto* label : {">1<", ">10<", ">100<"})
    CHECK(contains(svg, label));
  CHECK_FALSE(contains(svg, "inf"));
}
