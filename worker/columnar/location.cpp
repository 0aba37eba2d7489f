#include "worker/columnar/location.h"

#include <fmt/format.h>

namespace tilewright::columnar {

Location Location::at(std::string_view part) const {
  return Location(fmt::format("{}: {}", text_, part));
}

void Location::fail(std::string_view what) const {
  throw Failure(ExitCode::kData, fmt::format("{}: {}", text_, what));
}

}  // namespace tilewright::columnar
