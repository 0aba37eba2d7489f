// A manifest's text as a JSON tree that remembers on which line each value stood.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/findings.h"

namespace tilewright::api {

// etcd refuses larger objects anyway.
inline constexpr std::size_t kMaxManifestBytes = 1 << 20;

// Lines by field path (spec.volumes[0].name), from 1.
class Positions {
 public:
  void set(const std::string& path, int line) { lines_.insert_or_assign(path, line); }
  // The line of the field or, where it was left out, of the nearest field around it; 0: unknown.
  int line_of(std::string_view path) const;

 private:
  std::map<std::string, int, std::less<>> lines_;
};

// "spec" + "worker" and "" + "spec".
std::string member_path(std::string_view parent, std::string_view name);
// A key with dots or slashes is quoted: metadata.labels["a.b/c"].
std::string element_path(std::string_view parent, std::size_t index);

struct Document {
  nlohmann::json tree;
  Positions positions;
  std::vector<FieldError> errors;  // the tree is of no use if there are any
};

// YAML of one document (JSON is YAML). Plain scalars are typed as kubectl types them: yes, no, on
// and off are booleans. Refused: more than one document, more than kMaxManifestBytes, invalid
// UTF-8, a key given twice, merge keys, deep or exploding nesting.
Document read_yaml(std::string_view text);

}  // namespace tilewright::api
