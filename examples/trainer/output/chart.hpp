#pragma once

#include <string>
#include <vector>

namespace syncnorm::train {

struct chart_point {
  double x = 0;
  double y = 0;
  /// Half the height of the error bar; 0 for none.
  double spread = 0;
};

struct chart_series {
  std::string name;
  std::vector<chart_point> points;
};

/// One pair of axes with its curves.
struct chart_panel {
  std::string title;
  std::string x_label;
  std::string y_label;
  std::vector<chart_series> series;
  /// Powers of two along x, instead of even steps.
  bool log2_x = false;
  /// Powers of ten along y, instead of even steps.
  bool log10_y = false;
};

/// The panels side by side as an SVG document. Points that are not finite are
/// left out.
[[nodiscard]] std::string render_svg(const std::vector<chart_panel>& panels);

/// Whether a file that begins with `begin`, its first 512 bytes or more, or all
/// that it has, is one of `render_svg`.
[[nodiscard]] bool is_chart(const std::string& begin);

} // namespace syncnorm::train
