#include "worker/train/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

namespace tilewright::train {
namespace {

std::string in_thousands(double number) {
  return number < 10000 ? fmt::format("{:.0f}", number) : fmt::format("{:.1f}k", number / 1000);
}

}  // namespace

void RateMeter::restart(MonotonicTime now) {
  marks_.clear();
  marks_.push_back({now});
}

Rates RateMeter::add(const StepReport& report, MonotonicTime now) {
  if (marks_.empty()) marks_.push_back({now});
  const Mark& last = marks_.back();
  marks_.push_back({now, last.examples + static_cast<double>(report.examples),
                    last.tokens + static_cast<double>(report.tokens), last.flops + report.flops});
  if (marks_.size() > kWindow + 1) marks_.pop_front();
  const Mark& from = marks_.front();
  const Mark& to = marks_.back();
  const double seconds = std::max(1e-9, std::chrono::duration<double>(to.at - from.at).count());
  Rates rates;
  rates.examples_per_second = (to.examples - from.examples) / seconds;
  rates.tokens_per_second = (to.tokens - from.tokens) / seconds;
  rates.gflops = (to.flops - from.flops) / seconds * 1e-9;
  rates.eta_seconds = seconds / static_cast<double>(marks_.size() - 1) *
                      static_cast<double>(report.total_steps - report.step);
  return rates;
}

std::string describe(const StepReport& report, const Rates& rates, double peak_gflops) {
  std::string text = fmt::format(
      "step {}/{} | epoch {:.2f} | loss {:.4f} | lr {:.2e} | {:.1f} examples/s | {} tokens/s | "
      "{:.0f} GFLOP/s",
      report.step, report.total_steps, report.epoch, report.loss, report.learning_rate,
      rates.examples_per_second, in_thousands(rates.tokens_per_second), rates.gflops);
  if (peak_gflops > 0) {
    text += fmt::format(" ({:.0f} % of {:.0f})", 100 * rates.gflops / peak_gflops, peak_gflops);
  }
  return text +
         fmt::format(" | ETA {}", to_words(std::chrono::duration<double>(rates.eta_seconds)));
}

ProgressPrinter::ProgressPrinter(Logger& logger, bool terminal, double peak_gflops)
    : logger_(logger), terminal_(terminal), peak_gflops_(peak_gflops) {}

void ProgressPrinter::show(const StepReport& report, const Rates& rates, MonotonicTime now) {
  const bool last = report.step == report.total_steps;
  if (now < next_ && !last) return;
  if (!terminal_) {
    next_ = now + kLineInterval;
    logger_.info("{}", describe(report, rates, peak_gflops_));
    return;
  }
  next_ = now + kBarInterval;
  constexpr std::int64_t kWidth = 24;
  const std::int64_t full = kWidth * report.step / std::max<std::int64_t>(1, report.total_steps);
  std::string bar;
  for (std::int64_t i = 0; i < kWidth; ++i) bar += i < full ? "█" : "░";
  std::fprintf(stderr, "\r\033[K%s %s", bar.c_str(), describe(report, rates, peak_gflops_).c_str());
  std::fflush(stderr);
  drawn_ = true;
  if (last) release();
}

void ProgressPrinter::release() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

}  // namespace tilewright::train
