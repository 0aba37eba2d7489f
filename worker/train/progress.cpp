#include "worker/train/progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "common/base/clock.h"
#include "common/contract/log_lines.h"

namespace tilewright::train {
namespace {

// "1:35", "10:01:35"
std::string format_eta(double seconds) {
  const auto total = std::llround(seconds);
  if (total < 3600) return fmt::format("{}:{:02}", total / 60, total % 60);
  return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
}

}  // namespace

void RateMeter::restart(MonotonicTime now) {
  samples_.clear();
  samples_.push_back({now});
}

Rates RateMeter::add(const StepReport& report, MonotonicTime now) {
  if (samples_.empty()) samples_.push_back({now});
  const Sample& last = samples_.back();
  samples_.push_back({now, last.examples + static_cast<double>(report.examples),
                      last.tokens + static_cast<double>(report.tokens), last.flops + report.flops,
                      last.exchange + report.exchange_seconds,
                      last.hidden_exchange + report.hidden_exchange_seconds});
  if (samples_.size() > kWindow + 1) samples_.pop_front();
  const Sample& from = samples_.front();
  const Sample& to = samples_.back();
  const double seconds = std::max(1e-9, in_seconds(to.at - from.at));
  Rates rates;
  rates.examples_per_second = (to.examples - from.examples) / seconds;
  rates.tokens_per_second = (to.tokens - from.tokens) / seconds;
  rates.gflops = (to.flops - from.flops) / seconds * 1e-9;
  const auto steps = static_cast<double>(samples_.size() - 1);
  rates.eta_seconds = seconds / steps * static_cast<double>(report.total_steps - report.step);
  rates.exchange_seconds = (to.exchange - from.exchange) / steps;
  rates.hidden_exchange_seconds = (to.hidden_exchange - from.hidden_exchange) / steps;
  return rates;
}

std::string describe(const StepReport& report, const Rates& rates, double peak_gflops) {
  std::string text =
      fmt::format("{} {}/{}  epoch {:.2f}  loss {:.4f}  {:.{}f} examples/s", log_lines::kStep,
                  report.step, report.total_steps, report.epoch, report.loss,
                  rates.examples_per_second, rates.examples_per_second < 100 ? 1 : 0);
  if (peak_gflops > 0) {
    text += fmt::format("  {:.0f} % of peak", 100 * rates.gflops / peak_gflops);
  } else {
    text += fmt::format("  {:.0f} GFLOP/s", rates.gflops);
  }
  return text + "  ETA " + format_eta(rates.eta_seconds);
}

std::string describe_exchange(const Rates& rates) {
  const int decimals = rates.exchange_seconds < 0.01 ? 1 : 0;
  return fmt::format("exchange {:.{}f} ms a step, {:.{}f} hidden by backward",
                     1e3 * rates.exchange_seconds, decimals, 1e3 * rates.hidden_exchange_seconds,
                     decimals);
}

ProgressPrinter::ProgressPrinter(Logger& logger, const ProgressOptions& options)
    : logger_(logger), options_(options) {}

std::string ProgressPrinter::next_line(StepReport report, const Rates& rates, double peak_gflops) {
  report.loss = std::exchange(loss_sum_, 0) / std::exchange(losses_, 0);
  return describe(report, rates, peak_gflops);
}

void ProgressPrinter::show(const StepReport& report, const Rates& rates, double peak_gflops,
                           MonotonicTime now) {
  loss_sum_ += report.loss;
  ++losses_;
  const bool last = report.step == report.total_steps;
  if (!options_.terminal) {
    const bool due = options_.schedule->is_due(options_.logging_strategy,
                                               options_.schedule->logging_steps, report.step) ||
                     last || (report.step == 1 && options_.logging_first_step);
    if (due) logger_.info("{}", next_line(report, rates, peak_gflops));
    return;
  }
  if (now < next_bar_ && !last) return;
  next_bar_ = now + kBarInterval;
  constexpr std::int64_t kWidth = 24;
  const std::int64_t full = kWidth * report.step / std::max<std::int64_t>(1, report.total_steps);
  std::string bar;
  for (std::int64_t i = 0; i < kWidth; ++i) bar += i < full ? "█" : "░";
  std::fprintf(stderr, "\r\033[K%s %s", bar.c_str(), next_line(report, rates, peak_gflops).c_str());
  std::fflush(stderr);
  drawn_ = true;
  if (last) end_line();
}

void ProgressPrinter::end_line() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

}  // namespace tilewright::train
