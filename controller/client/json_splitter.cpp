// A state machine that reads each byte once.
#include "controller/client/json_splitter.h"

#include <algorithm>
#include <utility>

namespace tilewright::kube {

std::optional<std::string> JsonSplitter::next() {
  if (fault_) return std::nullopt;
  if (scanned_ == 0) {
    pending_.erase(0, std::min(pending_.find_first_not_of(kWhitespace), pending_.size()));
    if (!pending_.empty() && pending_.front() != '{') {
      fault_ = Fault::kNotAnObject;
      return std::nullopt;
    }
  }
  while (scanned_ < pending_.size()) {
    if (scanned_ >= max_bytes_) {
      fault_ = Fault::kTooLong;
      return std::nullopt;
    }
    const char c = pending_[scanned_++];
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
      }
      continue;
    }
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if ((c == '}' || c == ']') && --depth_ == 0) {
      std::string object = pending_.substr(0, scanned_);
      pending_.erase(0, std::exchange(scanned_, 0));
      return object;
    }
  }
  return std::nullopt;
}

}  // namespace tilewright::kube
