// Parses the API request counters in a controller's /metrics.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace tilewright::testing {

using ApiCall = std::pair<std::string, std::string>;  // verb and resource: "create", "pods"

// Number of requests by verb and resource, for all status codes; `exposition` is in the Prometheus
// text format.
std::map<ApiCall, std::uint64_t> api_calls(const std::string& exposition);

}  // namespace tilewright::testing
