// Environment variables of a launched process.
#pragma once
#include <map>
#include <string>

#include "worker/elastic/session.h"

namespace tilewright::elastic {

using Variables = std::map<std::string, std::string>;

inline GetVariable environment_of(Variables variables) {
  return [variables = std::move(variables)](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? std::string() : found->second;
  };
}

}  // namespace tilewright::elastic
