// An error of a manifest or another YAML file, with the path and line of its field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewright {

struct FieldError {
  std::string path;     // spec.volumes[0].name; empty: the whole manifest
  int line = 0;         // from 1; 0: unknown, as in objects from an API server
  std::string message;  // "found 3, expected at most 2, the value of spec.worker.replicas"

  // "trainjob.yaml:12: spec.worker.replicas: found ..."; without a file "line 12: spec...".
  std::string sentence(std::string_view file = {}) const;
  bool operator==(const FieldError&) const = default;
};

// Appends `error`. After 100 errors an entry says that there are more, and no other is added: each
// repeats a path, so that many of them need much memory.
void add_error(std::vector<FieldError>& errors, FieldError error);

// The sentences, one per line, sorted by line number.
std::string sentences(std::vector<FieldError> errors, std::string_view file = {});

}  // namespace tilewright
