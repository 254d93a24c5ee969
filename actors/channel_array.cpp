#include "syncnorm/channel_array.hpp"

#include <algorithm>

namespace syncnorm {

channel_array::channel_array(dtype type, std::size_t size, double value) {
  if (statistics_type(type) == dtype::float64)
    values_ = std::vector<double>(size, value);
  else
    values_ = std::vector<float>(size, static_cast<float>(value));
}

dtype channel_array::type() const noexcept {
  return values_.index() == 0 ? dtype::float32 : dtype::float64;
}

std::size_t channel_array::size() const noexcept {
  return std::visit([](const auto& x) { return x.size(); }, values_);
}

void* channel_array::data() noexcept {
  return std::visit([](auto& x) -> void* { return x.data(); }, values_);
}

const void* channel_array::data() const noexcept {
  return std::visit([](const auto& x) -> const void* { return x.data(); },
                    values_);
}

double channel_array::operator[](std::size_t i) const {
  return std::visit([i](const auto& x) { return static_cast<double>(x[i]); },
                    values_);
}

void channel_array::fill(double value) {
  std::visit(
      [value]<class T>(std::vector<T>& x) {
        std::ranges::fill(x, static_cast<T>(value));
      },
      values_);
}

void channel_array::assign(std::span<const double> values) {
  std::visit(
      [values]<class T>(std::vector<T>& x) {
        std::ranges::transform(values.first(x.size()), x.begin(),
                               [](double y) { return static_cast<T>(y); });
      },
      values_);
}

void channel_array::add(const channel_array& other) {
  std::visit(
      [&other]<class T>(std::vector<T>& x) {
        const auto& y = std::get<std::vector<T>>(other.values_);
        for (std::size_t i = 0; i < x.size(); ++i)
          x[i] += y[i];
      },
      values_);
}

std::vector<double> channel_array::widened() const {
  return std::visit(
      [](const auto& x) { return std::vector<double>(x.begin(), x.end()); },
      values_);
}

void channel_array::append_to(std::vector<double>& values) const {
  std::visit(
      [&values](const auto& x) {
        values.insert(values.end(), x.begin(), x.end());
      },
      values_);
}

std::variant<std::span<float>, std::span<double>> channel_array::view() {
  using result = std::variant<std::span<float>, std::span<double>>;
  return std::visit([](auto& x) -> result { return std::span{x}; }, values_);
}

} // namespace syncnorm
