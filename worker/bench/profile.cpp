#include "worker/bench/profile.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

namespace tilewright::bench {
namespace {

double gflops(const KernelTime& kernel) { return kernel.operations / kernel.seconds * 1e-9; }
double gigabytes(const KernelTime& kernel) { return kernel.bytes / kernel.seconds * 1e-9; }

// "1234 GFLOP/s, 35 %" or "12.3 GB/s".
std::string rate(const KernelTime& kernel, double peak) {
  if (kernel.operations > 0) {
    return fmt::format("{:.0f} GFLOP/s, {:.1f} %", gflops(kernel), 100 * gflops(kernel) / peak);
  }
  return kernel.bytes > 0 ? fmt::format("{:.1f} GB/s", gigabytes(kernel)) : std::string{};
}

std::string label(const KernelTime& kernel) {
  return kernel.shape.empty() ? kernel.kernel : kernel.kernel + " " + kernel.shape;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

const char* colour(std::string_view kernel) {
  if (kernel == "linear forward") return "#1f77b4";
  if (kernel == "linear dX") return "#17becf";
  if (kernel == "linear dW") return "#2ca02c";
  if (kernel.starts_with("attention")) return "#d62728";
  if (kernel == "other") return "#999999";
  return "#ff9f1c";
}

}  // namespace

double Profile::other_seconds() const {
  double other = seconds;
  for (const KernelTime& kernel : kernels) other -= kernel.seconds;
  return other;
}

void Profile::sort_by_time() {
  std::stable_sort(kernels.begin(), kernels.end(),
                   [](const KernelTime& a, const KernelTime& b) { return a.seconds > b.seconds; });
}

nlohmann::ordered_json Profile::to_json() const {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const KernelTime& kernel : kernels) {
    nlohmann::ordered_json row = {{"kernel", kernel.kernel}};
    if (!kernel.shape.empty()) row["shape"] = kernel.shape;
    row["calls"] = kernel.calls;
    row["seconds"] = kernel.seconds;
    row["share_of_step"] = kernel.seconds / seconds;
    if (kernel.operations > 0) {
      row["gflops"] = gflops(kernel);
      row["share_of_peak"] = gflops(kernel) / peak_gflops;
    } else if (kernel.bytes > 0) {
      row["gigabytes_per_second"] = gigabytes(kernel);
    }
    rows.push_back(std::move(row));
  }
  rows.push_back({{"kernel", "other"},
                  {"seconds", other_seconds()},
                  {"share_of_step", other_seconds() / seconds}});
  return rows;
}

std::string Profile::to_text() const {
  constexpr const char* kFormat = "{:<42}{:>9}{:>11}{:>9}{:>11}{:>9}{:>9}\n";
  const auto milliseconds = [](double time) { return fmt::format("{:.3f}", 1e3 * time); };
  const auto share = [](double part) { return fmt::format("{:.1f} %", 100 * part); };
  std::string out =
      fmt::format(fmt::runtime(kFormat), "", "calls", "ms", "share", "GFLOP/s", "of peak", "GB/s");
  for (const KernelTime& kernel : kernels) {
    const bool counted = kernel.operations > 0;
    out +=
        fmt::format(fmt::runtime(kFormat), label(kernel), fmt::format("{:.0f}", kernel.calls),
                    milliseconds(kernel.seconds), share(kernel.seconds / seconds),
                    counted ? fmt::format("{:.0f}", gflops(kernel)) : "",
                    counted ? share(gflops(kernel) / peak_gflops) : "",
                    !counted && kernel.bytes > 0 ? fmt::format("{:.1f}", gigabytes(kernel)) : "");
  }
  out += fmt::format(fmt::runtime(kFormat), "other", "", milliseconds(other_seconds()),
                     share(other_seconds() / seconds), "", "", "");
  out +=
      fmt::format(fmt::runtime(kFormat), "total", "", milliseconds(seconds), share(1), "", "", "");
  return out;
}

std::string Profile::to_svg() const {
  constexpr int kWidth = 960;
  constexpr int kBars = 330;  // left end of the bars
  constexpr int kLongest = 330;
  constexpr int kRow = 20;
  constexpr int kTop = 44;
  std::vector<KernelTime> rows = kernels;
  rows.push_back({.kernel = "other", .seconds = other_seconds()});
  double longest = 0;
  for (const KernelTime& row : rows) longest = std::max(longest, row.seconds);
  const int height = kTop + kRow * static_cast<int>(rows.size()) + 12;
  std::string out = fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" "
      "font-family=\"sans-serif\" "
      "font-size=\"12\">\n<title>{2}</title>\n"
      "<rect width=\"{0}\" height=\"{1}\" fill=\"white\"/>\n"
      "<text x=\"12\" y=\"24\" font-size=\"14\">{2}</text>\n",
      kWidth, height, xml(title));
  int y = kTop;
  for (const KernelTime& row : rows) {
    const double length = std::max(0.0, row.seconds / longest * kLongest);
    const std::string times =
        fmt::format("{:.2f} ms, {:.1f} %", 1e3 * row.seconds, 100 * row.seconds / seconds);
    const std::string speed = rate(row, peak_gflops);
    out += fmt::format(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n"
        "<rect x=\"{}\" y=\"{}\" width=\"{:.1f}\" height=\"{}\" fill=\"{}\"/>\n"
        "<text x=\"{:.1f}\" y=\"{}\">{}{}{}</text>\n",
        kBars - 8, y + 14, xml(label(row)), kBars, y + 2, length, kRow - 4, colour(row.kernel),
        kBars + length + 6, y + 14, xml(times), speed.empty() ? "" : "; ", xml(speed));
    y += kRow;
  }
  return out + "</svg>\n";
}

}  // namespace tilewright::bench
