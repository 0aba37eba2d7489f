#include "common/contract/rdzv_conf.h"

#include <fmt/format.h>

#include "common/contract/nearest.h"

namespace tilewright {
namespace {

constexpr std::string_view kTls = "tls";

Error refuse(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

}  // namespace

Status set_rdzv_conf(RdzvConf& conf, std::string_view key, std::string_view value) {
  if (key != kTls) {
    const std::string_view nearest = nearest_name(key, {kTls});
    return refuse(
        fmt::format("found the key \"{}\", expected {}{}", key, kTls,
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
