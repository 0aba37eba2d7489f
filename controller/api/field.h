// How the field lists describe a field of the API types. A field list is a function template
// `visit_fields(visitor, object)` that calls `visitor(Field, member)` for each field of `object`.
// The decoder, the encoder, the defaults, the check of bounds and the CRD are visitors of these
// lists, so a field is described in one place: trainjob_fields.h, pytorchjob_fields.h,
// status_fields.h or metadata_fields.h.
#pragma once

#include <concepts>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tilewright::api {

// One entry of x-kubernetes-validations. `message` is the text of the error; if it is empty,
// `message_expression` is a CEL expression that computes the text.
struct Rule {
  std::string rule;
  std::string message = {};
  std::string message_expression = {};
  std::string field_path = {};  // relative to `self`; the CRD generator sets it for spec_rules
  std::string reason = {};      // FieldValueInvalid if empty
};
// A function, so that the strings are built only when the CRD is generated.
using RuleList = std::vector<Rule> (*)();

// Inclusive.
struct Bounds {
  std::int64_t minimum = INT64_MIN;
  std::int64_t maximum = INT64_MAX;

  bool contains(std::int64_t value) const { return value >= minimum && value <= maximum; }
  bool limited() const { return minimum != INT64_MIN || maximum != INT64_MAX; }
};

struct Field {
  const char* name;
  // For `kubectl explain`.
  const char* description = "";
  // A second name that a manifest may use instead: the flag, which trainer.args can set too.
  const char* alias = nullptr;
  // Of a field with an alias: what is expected if nothing sets it; nullptr: it is optional.
  const char* expected = nullptr;
  // As written in a manifest, without quotes; nullptr: no static default.
  const char* default_value = nullptr;
  // The default of a map: keys and values that are added if the key is missing.
  std::span<const std::pair<const char*, const char*>> default_entries = {};
  // The bounds of an integer.
  Bounds bounds = {};
  // The schema has format int32, not int64.
  bool int32 = false;
  // The allowed values of a string; empty: any.
  std::span<const std::string_view> choices = {};
  // maxLength, maxItems or maxProperties of the schema; for a map of strings max_length bounds the
  // values. The API server needs them to estimate the cost of CEL rules. 0: none.
  std::int64_t max_length = 0;
  std::int64_t max_items = 0;
  // The key of a list whose entries have unique keys (x-kubernetes-list-type: map).
  const char* list_key = nullptr;
  // x-kubernetes-list-type: atomic.
  bool atomic_list = false;
  // Required by the CRD; always encoded.
  bool required = false;
  // Encoded even if empty.
  bool keep_empty = false;
  // An integer that is not encoded if it is 0.
  bool omit_zero = false;
  // Why the field cannot change after creation; nullptr: it can.
  const char* immutable = nullptr;
  // CEL rules whose `self` is the field, spec and the whole TrainJob, respectively.
  RuleList rules = nullptr;
  RuleList spec_rules = nullptr;
  RuleList job_rules = nullptr;
  // CEL rules whose `self` is a value of a map.
  RuleList value_rules = nullptr;
  // The schema of a member of type nlohmann::json. nullptr: any object, or a list of any objects if
  // max_items is set.
  nlohmann::json (*schema)() = nullptr;
};

// T or const T, so that one field list serves readers and writers.
template <typename Actual, typename T>
concept Of = std::same_as<std::remove_const_t<Actual>, T>;

// Base class of visitors. Ignores the entries of a field list that are not plain fields.
struct FieldVisitor {
  // CEL rules whose `self` is the object.
  void object_rules(RuleList) {}
  // A field that is accepted and not read.
  void ignored(const char*) {}
  // A field of the output whose value `compute()` derives from other fields.
  template <typename Compute>
  void computed(const Field&, const Compute&) {}
  // The fields of spec.trainer that are training flags.
  template <typename Flags>
  void training_flags(Flags&) {}
  // A list of command-line words that set the same flags.
  template <typename Flags>
  void training_arguments(const Field&, Flags&) {}
  // A list of objects whose only field is `item`: [{name: a}, {name: b}].
  template <typename Names>
  void references(const Field&, const Field& /*item*/, Names&) {}
  // The pods of a PyTorchJob by type, a map whose keys are Master and Worker in any case.
  template <typename Replicas>
  void replica_specs(const Field&, Replicas& /*master*/, Replicas& /*worker*/) {}
  // The member of a volume that holds its source.
  template <typename Source>
  void volume_source(Source&) {}
};

}  // namespace tilewright::api
