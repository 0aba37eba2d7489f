#include "controller/convert/draft.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/json/members.h"
#include "controller/api/decode.h"
#include "controller/api/defaults.h"
#include "controller/api/validate.h"

namespace tilewright::convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Splits spec.volumes[0].name, as member_path() and element_path() make it, into names and indices.
std::vector<std::string> path_parts(std::string_view path) {
  std::vector<std::string> parts;
  std::string part;
  const auto flush = [&] {
    if (!part.empty()) parts.push_back(std::move(part));
    part.clear();
  };
  for (std::size_t i = 0; i < path.size(); ++i) {
    if (path.substr(i).starts_with("[\"")) {
      flush();
      const std::size_t end = std::min(path.find("\"]", i), path.size());
      parts.emplace_back(path.substr(i + 2, end - i - 2));
      i = end + 1;
    } else if (path[i] == '.' || path[i] == '[') {
      flush();
    } else if (path[i] != ']') {
      part += path[i];
    }
  }
  flush();
  return parts;
}

// Removes the field at `path`, or the nearest enclosing one that exists. Returns its name for a
// comment: "hostPath of data", with the name of the innermost list element that has one.
std::string remove_field(ordered_json& tree, std::string_view path) {
  ordered_json* parent = nullptr;
  ordered_json* value = &tree;
  std::string name;
  std::string owner;
  for (const std::string& part : path_parts(path)) {
    ordered_json* inner = nullptr;
    if (value->is_object()) {
      const auto found = value->find(part);
      if (found != value->end()) inner = &*found;
    } else if (value->is_array() && part.find_first_not_of("0123456789") == std::string::npos) {
      const std::size_t index = std::stoul(part);
      if (index < value->size()) inner = &(*value)[index];
    }
    if (inner == nullptr) break;
    if (parent != nullptr && parent->is_array()) {
      const std::string element = string_member(json(*value), "name");
      if (!element.empty()) owner = element;
    }
    parent = value;
    value = inner;
    name = part;
  }
  TW_CHECK(parent != nullptr, "no field at {}", path);
  if (parent->is_object()) {
    parent->erase(name);
  } else {
    parent->erase(std::stoul(name));
  }
  return owner.empty() ? name : fmt::format("{} of {}", name, owner);
}

}  // namespace

std::string format_value(const json& value) {
  return excerpt(value.is_string() ? value.get<std::string>() : value.dump());
}

void Draft::error(const std::string& path, std::string message) {
  add_error(result_.errors, {path, positions_.line_of(path), std::move(message)});
}

void Draft::note(const std::string& path, const std::string& place, std::string message,
                 bool trainjob) {
  result_.notes.push_back({{path, positions_.line_of(path), std::move(message)}, place, trainjob});
}

void Draft::note_lost_output(const std::string& path, std::string message) {
  note(path, "spec.trainer.output", std::move(message));
  result_.notes.back().loses_output = true;
}

Conversion Draft::finish() {
  if (result_.ok()) validate();
  if (result_.ok()) result_.tree = std::move(tree);
  std::ranges::stable_sort(result_.notes, {}, [](const Note& note) { return note.at.line; });
  return std::move(result_);
}

// Checks the TrainJob as `tilewright validate` does. Fields of the podTemplate that a TrainJob
// cannot have become notes.
void Draft::validate() {
  constexpr int kMaxRemovals = 100;
  for (int round = 0;; ++round) {
    api::DecodeResult decoded = api::decode_object(json(tree), api::FieldValidation::kStrict);
    std::vector<FieldError> errors = decoded.errors;
    if (errors.empty()) {
      api::apply_defaults(decoded.job);
      api::Findings findings = api::validate(decoded.job);
      findings.append(api::validate_for_cluster(decoded.job));
      errors = findings.errors;
    }
    if (errors.empty()) return;
    const auto source = [&](std::string place) {
      while (!place.empty()) {
        const auto found = origins_.find(place);
        if (found != origins_.end()) return found->second;
        const std::size_t end = place.find_last_of(".[");
        place = end == std::string::npos ? "" : place.substr(0, end);
      }
      return std::string("spec");
    };
    const auto in_template = std::ranges::find_if(
        errors, [](const FieldError& error) { return error.path.starts_with(kPodTemplate); });
    if (in_template == errors.end() || round == kMaxRemovals) {
      for (const FieldError& found : errors) {
        error(source(found.path), fmt::format("{} of the TrainJob: {}", found.path, found.message));
      }
      return;
    }
    const std::string removed = remove_field(tree, in_template->path);
    note(source(in_template->path), kPodTemplate,
         fmt::format("{}: {}", removed, in_template->message), true);
  }
}

}  // namespace tilewright::convert
