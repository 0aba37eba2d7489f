#include "controller/api/documents.h"

#include <utility>

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

}  // namespace tilewright::api
