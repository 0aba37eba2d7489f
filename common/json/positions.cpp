#include "common/json/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace tilewright {
namespace {

using Place = Positions::Place;

const Place* find_member(const Place& object, std::string_view name) {
  for (const Place& child : object.children) {
    if (child.name == name) return &child;
  }
  return nullptr;
}

// ["a.b/c"]. The name itself may contain "].
const Place* take_quoted_member(const Place& object, std::string_view& path) {
  constexpr std::size_t kQuoteBytes = 2;
  for (std::size_t end = path.find("\"]", kQuoteBytes); end != std::string_view::npos;
       end = path.find("\"]", end + 1)) {
    const Place* child = find_member(object, path.substr(kQuoteBytes, end - kQuoteBytes));
    if (child == nullptr) continue;
    path.remove_prefix(end + kQuoteBytes);
    return child;
  }
  return nullptr;
}

// [0]
const Place* take_element(const Place& list, std::string_view& path) {
  std::size_t index = 0;
  const auto [end, error] = std::from_chars(path.data() + 1, path.data() + path.size(), index);
  if (error != std::errc() || index >= list.children.size()) return nullptr;
  path.remove_prefix(std::min<std::size_t>(path.size(), end - path.data() + 1));
  return &list.children[index];
}

// Removes the first step from `path` and returns the child that it names; nullptr if missing.
const Place* take_step(const Place& parent, std::string_view& path) {
  if (path.starts_with("[\"")) return take_quoted_member(parent, path);
  if (path.starts_with('[')) return take_element(parent, path);
  if (path.starts_with('.')) path.remove_prefix(1);
  const std::string_view name = path.substr(0, path.find_first_of(".["));
  path.remove_prefix(name.size());
  return find_member(parent, name);
}

}  // namespace

int Positions::line_of(std::string_view path) const {
  if (const auto moved = moved_.find(path); moved != moved_.end()) return moved->second;
  int line = 0;
  const Place* place = &root_;
  while (place != nullptr) {
    if (place->line > 0) line = place->line;
    if (path.empty()) break;
    place = take_step(*place, path);
  }
  return line;
}

Positions Positions::below(std::string_view path) const {
  const Place* place = &root_;
  while (place != nullptr && !path.empty()) place = take_step(*place, path);
  return place == nullptr ? Positions() : Positions(*place);
}

std::string member_path(std::string_view parent, std::string_view name) {
  if (name.empty() || name.find_first_of("./[]\" ") != std::string_view::npos) {
    return fmt::format("{}[\"{}\"]", parent, name);
  }
  return parent.empty() ? std::string(name) : fmt::format("{}.{}", parent, name);
}

std::string element_path(std::string_view parent, std::size_t index) {
  return fmt::format("{}[{}]", parent, index);
}

}  // namespace tilewright
