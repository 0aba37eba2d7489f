#include "controller/convert/commented_yaml.h"

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>

#include "common/json/positions.h"
#include "common/json/yaml.h"

namespace tilewright::convert {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kColumns = 100;
constexpr std::size_t kIndent = 2;

// 128Gi, 200m: no number of YAML, so it needs no quotes.
bool is_quantity_with_suffix(const std::string& text) {
  const std::size_t suffix = text.find_first_not_of("0123456789");
  if (suffix == 0 || suffix == std::string::npos) return false;
  static constexpr std::array<std::string_view, 11> kSuffixes = {"m",  "k",  "M",  "G",  "T", "P",
                                                                 "Ki", "Mi", "Gi", "Ti", "Pi"};
  return std::ranges::find(kSuffixes, text.substr(suffix)) != kSuffixes.end();
}

// A scalar, an empty object or an empty list.
std::string inline_value(const ordered_json& value) {
  if (value.is_string() && is_quantity_with_suffix(value.get_ref<const std::string&>())) {
    return value.get<std::string>();
  }
  std::string text = to_yaml(nlohmann::json(value));
  while (text.ends_with('\n')) text.pop_back();
  return text;
}

// The tree with the member "name" of each object first, as people write Kubernetes objects. Objects
// of the API server are sorted by name.
ordered_json with_name_first(const ordered_json& tree) {
  if (tree.is_array()) {
    ordered_json list = ordered_json::array();
    for (const ordered_json& each : tree) list.push_back(with_name_first(each));
    return list;
  }
  if (!tree.is_object()) return tree;
  ordered_json object = ordered_json::object();
  if (const auto name = tree.find("name"); name != tree.end() && name->is_string()) {
    object["name"] = *name;
  }
  for (const auto& member : tree.items()) {
    if (!object.contains(member.key())) object[member.key()] = with_name_first(member.value());
  }
  return object;
}

bool is_block(const ordered_json& value) { return value.is_structured() && !value.empty(); }

// Whether `path` is `parent` or a field of it.
bool is_within(std::string_view path, std::string_view parent) {
  if (parent.empty()) return true;
  if (!path.starts_with(parent)) return false;
  return path.size() == parent.size() || path[parent.size()] == '.' || path[parent.size()] == '[';
}

class Writer {
 public:
  explicit Writer(Comments comments) : comments_(std::move(comments)) {}

  std::string write(const ordered_json& tree) {
    write_members(tree, "", 0, false);
    return std::move(out_);
  }

 private:
  // `first_inline`: the first line has its indentation already, after the "- " of a list.
  void write_members(const ordered_json& object, const std::string& path, std::size_t indent,
                     bool first_inline) {
    bool at_start = first_inline;
    for (const auto& member : object.items()) {
      const std::string place = member_path(path, member.key());
      // A comment cannot stand between "- " and the first member.
      if (!at_start) write_comments(place, indent);
      if (!at_start) out_.append(indent, ' ');
      at_start = false;
      out_ += inline_value(member.key()) + ":";
      write_value(member.value(), place, indent);
      if (!is_block(member.value())) write_rest(place, indent);
    }
    write_rest(path, indent);
  }

  void write_value(const ordered_json& value, const std::string& path, std::size_t indent) {
    if (!is_block(value)) {
      out_ += ' ';
      out_ += inline_value(value);
      out_ += '\n';
    } else if (value.is_object()) {
      out_ += "\n";
      write_members(value, path, indent + kIndent, false);
    } else {
      out_ += "\n";
      write_items(value, path, indent + kIndent);
    }
  }

  void write_items(const ordered_json& list, const std::string& path, std::size_t indent) {
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string place = element_path(path, i);
      write_comments(place, indent);
      // The comments of the first member stand above the item.
      if (list[i].is_object() && !list[i].empty()) {
        write_comments(member_path(place, list[i].begin().key()), indent);
      }
      out_.append(indent, ' ');
      out_ += "- ";
      if (list[i].is_object() && !list[i].empty()) {
        write_members(list[i], place, indent + kIndent, true);
      } else {
        // A list in a list is written in flow style: it holds scalars in the manifests of jobs.
        out_ += (is_block(list[i]) ? list[i].dump() : inline_value(list[i])) + "\n";
      }
    }
    write_rest(path, indent);
  }

  void write_comments(const std::string& path, std::size_t indent) {
    const auto found = comments_.find(path);
    if (found == comments_.end()) return;
    for (const std::string& text : found->second) out_ += comment_lines(text, indent);
    comments_.erase(found);
  }

  // The comments of fields within `path` that the tree does not have.
  void write_rest(const std::string& path, std::size_t indent) {
    for (auto entry = comments_.begin(); entry != comments_.end();) {
      if (!is_within(entry->first, path)) {
        ++entry;
        continue;
      }
      for (const std::string& text : entry->second) out_ += comment_lines(text, indent);
      entry = comments_.erase(entry);
    }
  }

  Comments comments_;
  std::string out_;
};

}  // namespace

std::string comment_lines(const std::string& text, std::size_t indent) {
  std::istringstream words(text);
  std::string lines;
  std::string line;
  const auto flush = [&] {
    lines.append(indent, ' ');
    lines += "#" + line + "\n";
    line.clear();
  };
  for (std::string word; words >> word;) {
    if (!line.empty() && indent + 1 + line.size() + 1 + word.size() > kColumns) flush();
    line += " " + word;
  }
  if (!line.empty()) flush();
  return lines;
}

std::string to_commented_yaml(const ordered_json& tree, const Comments& comments) {
  return Writer(comments).write(with_name_first(tree));
}

}  // namespace tilewright::convert
