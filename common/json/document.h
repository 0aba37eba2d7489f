// Reads YAML into a JSON tree and keeps the line of each field.
#pragma once

#include <cstddef>
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

// Reads one YAML or JSON document. Types plain scalars as kubectl does: y, yes and on are booleans,
// 1_000 and 1e3 integers. Rejects multiple documents, invalid UTF-8, duplicate keys, merge keys,
// more than `max_bytes` and, with aliases expanded, what exceeds the TreeLimits of that many bytes.
// Stops at the first error.
Document read_yaml(std::string_view text, std::size_t max_bytes = kMaxManifestBytes);

inline constexpr std::size_t kMaxDocuments = 100;

// The same for a stream of documents, which share the limits. Lines are those of the stream; a
// document after the first has its own first line where it has no better one. Never empty: an error
// is in the only document.
std::vector<Document> read_yaml_documents(std::string_view text);

}  // namespace tilewright
