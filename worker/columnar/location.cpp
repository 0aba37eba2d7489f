#include "worker/columnar/location.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace tilewright::columnar {

Location Location::at(std::string_view part) const {
  return Location(fmt::format("{}: {}", text_, part));
}

void Location::fail(std::string_view what) const {
  throw Failure(ExitCode::kData, fmt::format("{}: {}", text_, what));
}

std::string quote(std::string_view text) {
  constexpr std::size_t kLongest = 200;
  return nlohmann::json(std::string(text.substr(0, kLongest)))
      .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace tilewright::columnar
