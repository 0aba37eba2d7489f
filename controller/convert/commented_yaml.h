// Writes a tree as YAML with comments at its fields.
#pragma once

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace tilewright::convert {

// Comments by the path of a field: spec.trainer.bf16. They stand above that field or, if the tree
// has no such field, at the end of the nearest enclosing object that it has.
using Comments = std::map<std::string, std::vector<std::string>>;

// Block style, members in the order of the tree, lines of comments of at most 100 columns.
std::string to_commented_yaml(const nlohmann::ordered_json& tree, const Comments& comments);

// "# TEXT" in lines of at most 100 columns, each after `indent` spaces.
std::string comment_lines(const std::string& text, std::size_t indent);

}  // namespace tilewright::convert
