#include "worker/bench/scaling_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "common/base/result.h"
#include "common/base/strings.h"

namespace tilewright::bench {
namespace {

struct RateUnit {
  const char* name;
  double bits_per_second;
};
constexpr std::array<RateUnit, 4> kRateUnits = {
    {{"Gbit", 1e9}, {"Mbit", 1e6}, {"kbit", 1e3}, {"bit", 1}}};
constexpr double kLeastRate = 1e3, kMostRate = 1e12;

// CPU seconds per byte that a node sends and receives, in this process and in the kernel; measured
// with two ranks over TCP (worker/collectives/README.md), rounded up.
constexpr double kCpuSecondsPerByte = 0.5e-9;
// Of the CPUs: above, threads wait for a CPU that would have one of their own on hosts.
constexpr double kMostLoad = 0.5;

constexpr std::array<PublishedScaling, 3> kPublished = {{
    {2, 1.7, "MRPC, DistilBERT relative to BERT-base on one node, Ice Lake"},
    {4, 3.0, "MRPC, DistilBERT relative to BERT-base on one node, Ice Lake"},
    {4, 4 * 0.87, "SQuAD, DistilBERT, Sapphire Rapids"},
}};

}  // namespace

double parse_link_rate(const std::string& text) {
  double number = 0;
  const char* const last = text.data() + text.size();
  const auto [end, error] = std::from_chars(text.data(), last, number, std::chars_format::fixed);
  for (const RateUnit& unit : kRateUnits) {
    const double rate = number * unit.bits_per_second;
    if (error == std::errc() && equal_ignoring_case({end, last}, unit.name) && kLeastRate <= rate &&
        rate <= kMostRate) {
      return rate;
    }
  }
  throw Failure(
      ExitCode::kUsage,
      fmt::format("--link: found \"{}\", expected a rate from 1kbit to 1000Gbit, such as 25Gbit",
                  text));
}

std::string format_link_rate(double bits_per_second) {
  for (const RateUnit& unit : kRateUnits) {
    if (bits_per_second >= unit.bits_per_second) {
      return fmt::format("{:.6g}{}", bits_per_second / unit.bits_per_second, unit.name);
    }
  }
  return fmt::format("{:.6g}bit", bits_per_second);
}

double default_slowdown(int nodes, int streams, int cpus, double bits_per_second) {
  const double cpus_of_node = std::min<double>(streams, bits_per_second / 8 * kCpuSecondsPerByte);
  return std::max(1.0, std::ceil(nodes * cpus_of_node / (cpus * kMostLoad)));
}

std::vector<double> bucket_times(std::span<const runtime::Range> buckets,
                                 std::span<const GradientReady> events, double compute) {
  std::vector<double> times;
  std::size_t event = 0;
  for (const runtime::Range& bucket : buckets) {
    while (event < events.size() && events[event].end < bucket.end) ++event;
    times.push_back(event < events.size() ? events[event].seconds : compute);
  }
  return times;
}

const StepTimeline& shortest_timeline(std::span<const StepTimeline> timelines) {
  return *std::ranges::min_element(timelines, {}, &StepTimeline::step);
}

StepTimeline faster(StepTimeline timeline, double speed) {
  for (double& time : timeline.bucket_ready) time /= speed;
  timeline.compute /= speed;
  timeline.update /= speed;
  return timeline;
}

double ScalingRow::hidden_share() const {
  return exchange > 0 ? std::clamp(1 - exposed / exchange, 0.0, 1.0) : 1;
}

void compare_with_one_node(std::vector<ScalingRow>& rows, double compute_threads) {
  const double one = rows.front().step;
  for (ScalingRow& row : rows) {
    row.efficiency = one / row.step;
    row.speedup = row.nodes * row.efficiency;
    row.shared_step = row.step + row.communication_cpu / compute_threads;
    row.shared_efficiency = one / row.shared_step;
  }
}

std::span<const PublishedScaling> published_scaling() { return kPublished; }

}  // namespace tilewright::bench
