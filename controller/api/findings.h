// What is wrong with a manifest: one sentence a field.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tilewright::api {

struct FieldError {
  std::string path;     // spec.volumes[0].name; empty: the whole manifest
  int line = 0;         // from 1; 0: unknown, as in objects from an API server
  std::string message;  // "found 3, expected at most 2, as spec.worker.replicas says"

  // "trainjob.yaml:12: spec.worker.replicas: found ..."; without a file "line 12: spec...".
  std::string sentence(std::string_view file = {}) const;
  bool operator==(const FieldError&) const = default;
};

struct Findings {
  std::vector<FieldError> errors;    // the job is refused
  std::vector<FieldError> warnings;  // the job is taken

  bool ok() const { return errors.empty(); }
  void append(Findings other);
};

// The sentences, one a line, by line number.
std::string sentences(std::vector<FieldError> errors, std::string_view file = {});

}  // namespace tilewright::api
