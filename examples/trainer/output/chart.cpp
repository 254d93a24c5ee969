#include "trainer/output/chart.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <string_view>

namespace syncnorm::train {

namespace {

constexpr double panel_width = 460;
constexpr double panel_height = 320;
constexpr double left = 64;
constexpr double right = 16;
constexpr double top = 36;
constexpr double bottom = 48;
constexpr int ticks = 5;
/// How a document begins, and its second line.
constexpr std::string_view document =
    R"(<svg xmlns="http://www.w3.org/2000/svg" width=")";
constexpr std::string_view background =
    R"(<rect width="100%" height="100%" fill="white"/>)";
constexpr std::array<std::string_view, 4> colours{"#1f77b4", "#d62728",
                                                  "#2ca02c", "#9467bd"};

/// Maps the values of one axis to pixels.
struct axis {
  double low = INFINITY;
  double high = -INFINITY;
  double from = 0;
  double to = 0;

  void include(double x) {
    low = std::min(low, x);
    high = std::max(high, x);
  }

  /// An axis of one value or none gets a length.
  void finish() {
    if (!(low <= high))
      low = 0, high = 1;
    if (low == high)
      low -= 0.5, high += 0.5;
  }

  [[nodiscard]] double pixel(double x) const {
    return from + (x - low) / (high - low) * (to - from);
  }
};

std::string escaped(std::string_view text) {
  std::string result;
  for (auto c : text)
    if (c == '<')
      result += "&lt;";
    else if (c == '&')
      result += "&amp;";
    else
      result += c;
  return result;
}

class panel_painter {
public:
  panel_painter(const chart_panel& panel, double offset) : panel_{panel} {
    x_.from = offset + left;
    x_.to = offset + panel_width - right;
    y_.from = panel_height - bottom;
    y_.to = top;
    for (const auto& series : panel.series)
      for (const auto& point : series.points)
        if (is_drawn(point)) {
          x_.include(place(point.x));
          y_.include(height(point.y - point.spread));
          y_.include(height(point.y + point.spread));
        }
    x_.finish();
    y_.finish();
  }

  std::string paint() {
    frame();
    for (std::size_t i = 0; i < panel_.series.size(); ++i)
      curve(i);
    return std::move(out_);
  }

private:
  [[nodiscard]] double place(double x) const {
    return panel_.log2_x ? std::log2(x) : x;
  }

  [[nodiscard]] double height(double y) const {
    return panel_.log10_y ? std::log10(y) : y;
  }

  [[nodiscard]] bool is_drawn(const chart_point& point) const {
    return std::isfinite(place(point.x))
           && std::isfinite(height(point.y - point.spread))
           && std::isfinite(height(point.y + point.spread));
  }

  void text(double x, double y, std::string_view anchor,
            std::string_view content, std::string_view more = "") {
    out_ += fmt::format(
        R"(<text x="{:.1f}" y="{:.1f}" text-anchor="{}"{}>{}</text>)"
        "\n",
        x, y, anchor, more, escaped(content));
  }

  void line(double x1, double y1, double x2, double y2,
            std::string_view colour) {
    out_ +=
        fmt::format(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" )"
                    R"(stroke="{}"/>)"
                    "\n",
                    x1, y1, x2, y2, colour);
  }

  void x_tick(double at, const std::string& label) {
    line(x_.pixel(at), y_.from, x_.pixel(at), y_.from + 4, "#444");
    text(x_.pixel(at), y_.from + 17, "middle", label);
  }

  void x_ticks() {
    if (panel_.log2_x)
      for (auto i = std::ceil(x_.low); i <= x_.high; ++i)
        x_tick(i, fmt::format("{:g}", std::exp2(i)));
    else
      for (int i = 0; i <= ticks; ++i) {
        auto at = x_.low + (x_.high - x_.low) * i / ticks;
        x_tick(at, fmt::format("{:.4g}", at));
      }
  }

  void y_tick(double at, const std::string& label) {
    line(x_.from, y_.pixel(at), x_.to, y_.pixel(at), "#ddd");
    text(x_.from - 6, y_.pixel(at) + 4, "end", label);
  }

  void y_ticks() {
    if (panel_.log10_y)
      for (auto i = std::ceil(y_.low); i <= y_.high; ++i)
        y_tick(i, fmt::format("{:g}", std::pow(10, i)));
    else
      for (int i = 0; i <= ticks; ++i) {
        auto at = y_.low + (y_.high - y_.low) * i / ticks;
        y_tick(at, fmt::format("{:.3g}", at));
      }
  }

  void frame() {
    auto middle = (x_.from + x_.to) / 2;
    text(middle, top - 16, "middle", panel_.title, R"( font-weight="bold")");
    text(middle, panel_height - 10, "middle", panel_.x_label);
    auto side = x_.from - 48;
    auto centre = (y_.from + y_.to) / 2;
    text(side, centre, "middle", panel_.y_label,
         fmt::format(R"x( transform="rotate(-90 {:.1f} {:.1f})")x", side,
                     centre));
    y_ticks();
    line(x_.from, y_.from, x_.to, y_.from, "#444");
    x_ticks();
  }

  void curve(std::size_t index) {
    const auto& series = panel_.series[index];
    auto colour = colours[index % colours.size()];
    std::string points;
    int drawn = 0;
    for (const auto& point : series.points) {
      if (!is_drawn(point))
        continue;
      ++drawn;
      auto x = x_.pixel(place(point.x));
      points += fmt::format("{:.1f},{:.1f} ", x, y_.pixel(height(point.y)));
      if (point.spread > 0)
        line(x, y_.pixel(height(point.y - point.spread)), x,
             y_.pixel(height(point.y + point.spread)), colour);
    }
    out_ += fmt::format(R"(<polyline points="{}" fill="none" stroke="{}" )"
                        R"(stroke-width="1.5"/>)"
                        "\n",
                        points, colour);
    if (drawn == 1)
      dot(series, colour);
    text(x_.to - 4, top + 14.0 * static_cast<double>(index + 1), "end",
         series.name, fmt::format(R"( fill="{}")", colour));
  }

  /// A line through one point is invisible.
  void dot(const chart_series& series, std::string_view colour) {
    for (const auto& point : series.points)
      if (is_drawn(point))
        out_ += fmt::format(
            R"(<circle cx="{:.1f}" cy="{:.1f}" r="3" fill="{}"/>)"
            "\n",
            x_.pixel(place(point.x)), y_.pixel(height(point.y)), colour);
  }

  const chart_panel& panel_;
  axis x_;
  axis y_;
  std::string out_;
};

} // namespace

bool is_chart(const std::string& begin) {
  auto first = begin.find('\n');
  return first != std::string::npos && begin.starts_with(document)
         && std::string_view{begin}.substr(first + 1).starts_with(background);
}

std::string render_svg(const std::vector<chart_panel>& panels) {
  auto width = panel_width * static_cast<double>(panels.size());
  auto result = fmt::format(
      R"({2}{0}" height="{1}" )"
      R"(viewBox="0 0 {0} {1}" font-family="sans-serif" font-size="12">)"
      "\n{3}\n",
      width, panel_height, document, background);
  for (std::size_t i = 0; i < panels.size(); ++i)
    result +=
        panel_painter{panels[i], panel_width * static_cast<double>(i)}.paint();
  return result + "</svg>\n";
}

} // namespace syncnorm::train
