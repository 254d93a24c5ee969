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
  auto empty = render_svg({{"empty", "x & y", "y", {}}});
  CHECK(empty.ends_with("</svg>\n"));
  CHECK(contains(empty, ">x &amp; y<"));
  for (const auto* text : {"nan", "inf"})
    CHECK_FALSE(contains(empty, text));
}

TEST_CASE("a chart's spreads stand within its axes, and its series have "
          "colours of their own") {
  chart_series wide{"wide", {{3, 5, 2}, {5, 5}}};
  chart_series flat{"flat", {{3, 5}, {5, 5}}};
  auto svg = render_svg({{"title", "x", "y", {wide, flat}, true}});
  // From the bottom to the top of the panel.
  CHECK(count(svg, R"(x1="64.0" y1="272.0" x2="64.0" y2="36.0" )"
                   R"(stroke="#1f77b4")")
        == 1);
  CHECK(count(svg, R"(fill="none" stroke="#d62728")") == 1);
  // Of the powers of two there is one between 3 and 5.
  CHECK(contains(svg, ">4<"));
  CHECK_FALSE(contains(svg, ">2<"));
}

TEST_CASE("a chart shows a series of one point, which has no line") {
  chart_series one{"one", {{1, NAN}, {2, 5}}};
  chart_series two{"two", {{1, 4}, {2, 6}}};
  CHECK(count(render_svg({{"title", "x", "y", {one, two}}}), "<circle") == 1);
  CHECK(count(render_svg({{"title", "x", "y", {two}}}), "<circle") == 0);
  CHECK_FALSE(contains(render_svg({{"title", "x", "y", {one}}}), "nan"));
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
