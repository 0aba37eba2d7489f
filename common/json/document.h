// Reads YAML into a JSON tree and keeps the line of each field.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/field_error.h"
#include "common/json/positions.h"
#include "common/json/tree_limits.h"

namespace tilewright {

struct Document {
  nlohmann::json tree;
  Positions positions;
  std::vector<FieldError> errors;  // if not empty, the tree is incomplete
};

// Reads one YAML or JSON document. Types plain scalars as kubectl does: yes, no, on and off are
// booleans. Rejects multiple documents, invalid UTF-8, duplicate keys, merge keys, more than
// kMaxManifestBytes and, with aliases expanded, what exceeds TreeLimits. Stops at the first error.
Document read_yaml(std::string_view text);

}  // namespace tilewright
