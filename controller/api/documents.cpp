#include "controller/api/documents.h"

#include <fmt/format.h>

#include <utility>

#include "common/base/printable.h"
#include "common/contract/labels.h"
#include "common/contract/nearest.h"
#include "common/json/members.h"

namespace tilewright::api {

std::vector<Document> read_objects(std::string_view text) {
  std::vector<Document> objects;
  for (Document& document : read_yaml_documents(text)) {
    const nlohmann::json& items = member(document.tree, "items");
    const bool is_list = document.errors.empty() &&
                         string_member(document.tree, "kind") == "List" && items.is_array();
    if (!is_list) {
      objects.push_back(std::move(document));
      continue;
    }
    for (std::size_t i = 0; i < items.size(); ++i) {
      objects.push_back({items[i], document.positions.below(element_path("items", i)), {}});
    }
  }
  return objects;
}

std::optional<FieldError> kind_error(const Document& object, bool alone) {
  const std::string kind = string_member(object.tree, "kind");
  if (kind.empty() || kind == kTrainJobKind || kind == kPyTorchJobKind) return std::nullopt;
  const std::string hint = did_you_mean(kind, {kTrainJobKind, kPyTorchJobKind});
  if (!alone && hint.empty()) return std::nullopt;
  return FieldError{
      "kind", object.positions.line_of("kind"),
      fmt::format("found {}, expected {} ({}) or {} ({}){}", quoted_excerpt(kind), kTrainJobKind,
                  kApiVersion, kPyTorchJobKind, kPyTorchJobApiVersion, hint)};
}

}  // namespace tilewright::api
