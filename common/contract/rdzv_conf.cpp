#include "common/contract/rdzv_conf.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/base/strings.h"
#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::string_view kTls = kRdzvConfKeys[0];
constexpr std::string_view kInterval = kRdzvConfKeys[1];
constexpr std::string_view kAttempts = kRdzvConfKeys[2];
// torchrun's defaults (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py).
constexpr double kDefaultInterval = 5;  // seconds
constexpr double kDefaultAttempts = 3;

Error refuse(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

Status set_number(std::optional<double>& out, std::string_view key, std::string_view value) {
  const auto number = parse_number<double>(value, 0, kMostKeepAlive);
  if (!number || *number == 0)
    return refuse(fmt::format("found \"{}\" for {}, expected a number above 0 and up to {}", value,
                              key, kMostKeepAlive));
  out = *number;
  return {};
}

// In seconds.
double keep_alive_product(const RdzvConf& conf) {
  return conf.keep_alive_interval.value_or(kDefaultInterval) *
         conf.keep_alive_max_attempt.value_or(kDefaultAttempts);
}

}  // namespace

std::optional<Duration> RdzvConf::heartbeat_timeout() const {
  if (!keep_alive_interval && !keep_alive_max_attempt) return std::nullopt;
  const std::chrono::duration<double> most = kMostHeartbeatTimeout;
  return std::chrono::duration_cast<Duration>(
      std::min(std::chrono::duration<double>(keep_alive_product(*this)), most));
}

Status check(const RdzvConf& conf) {
  const double product = keep_alive_product(conf);
  const double least = in_seconds(kLeastHeartbeatTimeout), most = in_seconds(kMostHeartbeatTimeout);
  if (product >= least && product <= most) return {};
  const std::string limit =
      product < least
          ? fmt::format("at least {} s, because workers send a heartbeat every second", least)
          : fmt::format("at most {} s", most);
  return refuse(
      fmt::format("found {} s for {} x {}, expected {}", product, kInterval, kAttempts, limit));
}

Status set_rdzv_conf(RdzvConf& conf, std::string_view key, std::string_view value) {
  if (key == kInterval) return set_number(conf.keep_alive_interval, key, value);
  if (key == kAttempts) return set_number(conf.keep_alive_max_attempt, key, value);
  if (key != kTls) {
    return refuse(fmt::format("found the key \"{}\", expected {}, {} or {}{}", key, kTls, kInterval,
                              kAttempts,
                              did_you_mean(key, {kRdzvConfKeys.begin(), kRdzvConfKeys.end()})));
  }
  if (value != "true" && value != "false")
    return refuse(fmt::format("found \"{}\" for {}, expected true or false", value, key));
  conf.tls = value == "true";
  return {};
}

}  // namespace tilewright
