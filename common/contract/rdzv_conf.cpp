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

}  // namespace

std::optional<Duration> RdzvConf::heartbeat_timeout() const {
  if (!keep_alive_interval && !keep_alive_max_attempt) return std::nullopt;
  const std::chrono::duration<double> product(keep_alive_interval.value_or(kDefaultInterval) *
                                              keep_alive_max_attempt.value_or(kDefaultAttempts));
  return std::chrono::duration_cast<Duration>(
      std::min(product, std::chrono::duration<double>(kMostHeartbeatTimeout) * 2));
}

Status check(const RdzvConf& conf) {
  const std::optional<Duration> timeout = conf.heartbeat_timeout();
  if (!timeout || (*timeout >= kLeastHeartbeatTimeout && *timeout <= kMostHeartbeatTimeout))
    return {};
  const std::string limit =
      *timeout < kLeastHeartbeatTimeout
          ? fmt::format("at least {} s, because workers send a heartbeat every second",
                        in_seconds(kLeastHeartbeatTimeout))
          : fmt::format("at most {} s", in_seconds(kMostHeartbeatTimeout));
  return refuse(fmt::format("found {} s for {} x {}, expected {}",
                            conf.keep_alive_interval.value_or(kDefaultInterval) *
                                conf.keep_alive_max_attempt.value_or(kDefaultAttempts),
                            kInterval, kAttempts, limit));
}

Status set_rdzv_conf(RdzvConf& conf, std::string_view key, std::string_view value) {
  if (key == kInterval) return set_number(conf.keep_alive_interval, key, value);
  if (key == kAttempts) return set_number(conf.keep_alive_max_attempt, key, value);
  if (key != kTls) {
    const std::string_view nearest = nearest_name(key, {kTls, kInterval, kAttempts});
    return refuse(fmt::format(
        "found the key \"{}\", expected {}, {} or {}{}", key, kTls, kInterval, kAttempts,
        nearest.empty() ? std::string() : fmt::format("; did you mean {}?", nearest)));
  }
  if (value != "true" && value != "false")
    return refuse(fmt::format("found \"{}\" for {}, expected true or false", value, key));
  conf.tls = value == "true";
  return {};
}

}  // namespace tilewright
