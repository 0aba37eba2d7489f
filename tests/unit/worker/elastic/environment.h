// Environment variables of a launched process.
#pragma once
#include <map>
#include <string>

#include "worker/elastic/session.h"

namespace tilewright::elastic {

// No resolver knows this name, not even one that has an answer for every other: a label has up to
// 63 characters (RFC 1035, section 2.3.4).
inline const std::string kNoHost(64, 'x');

using Variables = std::map<std::string, std::string>;

inline GetVariable environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

}  // namespace tilewright::elastic
