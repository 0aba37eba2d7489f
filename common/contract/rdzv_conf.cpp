#include "common/contract/rdzv_conf.h"

#include <fmt/format.h>

#include "common/base/strings.h"
#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::string_view kTls = "tls";
constexpr std::string_view kInterval = "keep_alive_interval";
constexpr std::string_view kAttempts = "keep_alive_max_attempt";
// torchrun's defaults (torch/distributed/elastic/rendezvous/dynamic_rendezvous.py).
constexpr double kDefaultInterval = 5;  // seconds
constexpr double kDefaultAttempts = 3;
constexpr double kMost = 3000;  // so that the product is at most some hundred days

// Workers send a heartbeat every second.
constexpr Duration kLeastTimeout = std::chrono::seconds(3);

Error refuse(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

Status set_number(std::optional<double>& out, std::string_view key, std::string_view value) {
  const auto number = parse_number<double>(value, 0, kMost);
  if (!number || *number == 0)
    return refuse(fmt::format("found \"{}\" for {}, expected a number above 0 and up to {}", value,
                              key, kMost));
  out = *number;
  return {};
}

}  // namespace

std::optional<Duration> RdzvConf::heartbeat_timeout() const {
  if (!keep_alive_interval && !keep_alive_max_attempt) return std::nullopt;
  const std::chrono::duration<double> product(keep_alive_interval.value_or(kDefaultInterval) *
                                              keep_alive_max_attempt.value_or(kDefaultAttempts));
  return std::chrono::duration_cast<Duration>(product);
}

Status check(const RdzvConf& conf) {
  const std::optional<Duration> timeout = conf.heartbeat_timeout();
  if (!timeout || *timeout >= kLeastTimeout) return {};
  return refuse(
      fmt::format("found {} s for {} x {}, expected at least {} s, because workers send a "
                  "heartbeat every second",
                  in_seconds(*timeout), kInterval, kAttempts, in_seconds(kLeastTimeout)));
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

Status parse_rdzv_conf(RdzvConf& conf, std::string_view text) {
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    text.remove_prefix(std::min(one.size() + 1, text.size()));
    const std::size_t equals = one.find('=');
    if (equals == std::string_view::npos)
      return refuse(fmt::format("found \"{}\", expected key=value,...", one));
    if (Status status = set_rdzv_conf(conf, one.substr(0, equals), one.substr(equals + 1));
        !status.ok())
      return status;
  }
  return {};
}

}  // namespace tilewright
