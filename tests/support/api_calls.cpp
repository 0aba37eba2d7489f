#include "tests/support/api_calls.h"

#include <sstream>

namespace tilewright::testing {

std::map<ApiCall, std::uint64_t> api_calls(const std::string& exposition) {
  std::map<ApiCall, std::uint64_t> calls;
  std::istringstream lines(exposition);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("tilewright_controller_api_requests_total{")) continue;
    const auto label = [&line](const std::string& name) {
      const std::size_t from = line.find(name + "=\"") + name.size() + 2;
      return line.substr(from, line.find('"', from) - from);
    };
    calls[{label("verb"), label("resource")}] +=
        static_cast<std::uint64_t>(std::stod(line.substr(line.rfind(' ') + 1)));
  }
  return calls;
}

}  // namespace tilewright::testing
