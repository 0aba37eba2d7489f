// What a controller says in /metrics of the requests that it has made.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

namespace tilewright::testing {

using ApiCall = std::pair<std::string, std::string>;  // verb and resource: "create", "pods"

// How often it made which, whatever the answer; `exposition` is Prometheus' text.
std::map<ApiCall, std::uint64_t> api_calls(const std::string& exposition);

}  // namespace tilewright::testing
