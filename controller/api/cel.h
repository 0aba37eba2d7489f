// CEL rules that several fields of the CRD share, and the rules that compare several fields.
// The messages are those of validate(). `messageExpression` uses format(): the API server assigns
// an unbounded cost to a concatenation of strings that contains a number. `[value].all(name, ...)`
// stands for a variable, which CEL does not have.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "controller/api/field.h"

namespace tilewright::api::cel {

// 'text' as a CEL string literal. `text` contains neither quotes nor backslashes.
std::string literal(std::string_view text);
// ['a', 'b'] as a CEL list of string literals.
std::string list(const std::vector<std::string>& items);
// "found %s, expected ...".format([value]) where `value` is CEL.
std::string found(std::string_view expected, std::string_view value = "self",
                  std::string_view conversion = "%s");

// An integer within bounds.
Rule within(const Bounds& bounds);
// auto, cpu or an integer within bounds.
Rule process_count(const Bounds& bounds);
// A Kubernetes quantity above zero.
std::vector<Rule> quantity();
// Empty, or a DNS subdomain.
std::vector<Rule> optional_subdomain();
// A DNS subdomain; `expected` names it in the message.
Rule subdomain(std::string_view expected);
enum class EmptyPath { kAllowed, kRefused };
// VOLUME:relative/path.
Rule trainer_path(EmptyPath empty);
// VOLUME:relative/path or a name on the hub.
Rule name_or_trainer_path(EmptyPath empty);
// CEL: whether spec.trainer.args has one of these flags. `self` is spec.trainer.
std::string in_arguments(const std::vector<std::string_view>& flags);
// spec.trainer says which task to train.
Rule some_task();
// The path of the output: below the volume, not the volume itself.
Rule below_volume();
// The resources of a worker: known names, and enough memory.
std::vector<Rule> resources();
// A word of spec.trainer.args: a known flag that a manifest may set, or a value. The operator
// checks the values.
std::vector<Rule> trainer_args();
// The name does not start with "tilewright-".
Rule unreserved_volume_name();
// Regular expressions for a label key and value.
extern const char* const kLabelKeyPattern;
extern const char* const kLabelValuePattern;

// The path in spec.trainer.NAME or its ALIAS (nullptr: none): the volume exists, and each variable
// has a known value. CEL cannot expand variables, so the operator checks the expanded path.
std::vector<Rule> path_references(const char* name, const char* alias);
// The volume of the output is not read-only.
Rule writable_output();

// The number of processes, the global batch and the virtual shards. Once the job has started, the
// numbers fixed in its status replace those of the spec.
std::vector<Rule> max_replicas_limits();
std::vector<Rule> virtual_shards_limits();
std::vector<Rule> job_name();

// The names that the operator sets itself, as a CEL list.
std::string runtime_variable_list();

}  // namespace tilewright::api::cel
