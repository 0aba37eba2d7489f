// The place in a data file that an error message names: "FILE: column "question": page at byte 4".
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::columnar {

class Location {
 public:
  explicit Location(std::string text) : text_(std::move(text)) {}
  // A place within this one.
  Location at(std::string_view part) const;
  // Throws Failure(kData) with the message "LOCATION: WHAT".
  [[noreturn]] void fail(std::string_view what) const;

 private:
  std::string text_;
};

}  // namespace tilewright::columnar
