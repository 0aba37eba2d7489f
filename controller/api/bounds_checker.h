// Checks the bounds of all integers of an object, from its field list.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "controller/api/field.h"
#include "controller/api/pytorchjob.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {

class BoundsChecker : public FieldVisitor {
 public:
  BoundsChecker(std::string path, FindingCollector& collector)
      : path_(std::move(path)), collector_(collector) {}

  void operator()(const Field& field, const std::optional<std::int64_t>& value) {
    if (!field.bounds.limited()) return;
    collector_.require_range(member_path(path_, field.name), value, field.bounds.minimum,
                             field.bounds.maximum);
  }
  void operator()(const Field& field, const std::optional<ProcessCount>& value) {
    if (value) (*this)(field, std::optional(value->number));
  }
  template <typename T>
  void operator()(const Field& field, const std::optional<T>& member) {
    if (member) (*this)(field, *member);
  }
  template <typename T>
  void operator()(const Field& field, const T& member) {
    BoundsChecker inner(member_path(path_, field.name), collector_);
    if constexpr (requires { visit_fields(inner, member); }) visit_fields(inner, member);
  }
  void replica_specs(const Field& field, const std::optional<PyTorchReplicaSpec>& master,
                     const std::optional<PyTorchReplicaSpec>& worker) {
    BoundsChecker inner(member_path(path_, field.name), collector_);
    inner(Field{kMasterType}, master);
    inner(Field{kWorkerType}, worker);
  }

 private:
  std::string path_;
  FindingCollector& collector_;
};

}  // namespace tilewright::api
