#include "common/json/yaml.h"

#include <yaml-cpp/yaml.h>

#include "common/json/scalar.h"

namespace tilewright {
namespace {

// Whether YAML 1.1 and 1.2 read the unquoted text as a string. May return false for text that needs
// no quotes.
bool can_be_plain_scalar(const std::string& text) {
  if (text.empty() || !resolve_plain_scalar(text).is_string()) return false;
  const auto letter = [](char c) { return (c | 0x20) >= 'a' && (c | 0x20) <= 'z'; };
  if (!letter(text.front()) && text.front() != '/' && text.front() != '$') return false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool digit = c >= '0' && c <= '9';
    if (letter(c) || digit || std::string_view("-_./$()=+").find(c) != std::string_view::npos) {
      continue;
    }
    // Inside a plain scalar a colon or comma needs no quotes unless a space follows.
    const bool inside = i + 1 < text.size() && text[i + 1] != ' ';
    if ((c == ':' || c == ' ' || c == ',') && inside) continue;
    return false;
  }
  return true;
}

void emit(YAML::Emitter& out, const nlohmann::json& tree) {
  switch (tree.type()) {
    case nlohmann::json::value_t::object:
      out << (tree.empty() ? YAML::Flow : YAML::Block) << YAML::BeginMap;
      for (const auto& member : tree.items()) {
        out << YAML::Key;
        emit(out, member.key());
        out << YAML::Value;
        emit(out, member.value());
      }
      out << YAML::EndMap;
      break;
    case nlohmann::json::value_t::array:
      out << (tree.empty() ? YAML::Flow : YAML::Block) << YAML::BeginSeq;
      for (const auto& item : tree) emit(out, item);
      out << YAML::EndSeq;
      break;
    case nlohmann::json::value_t::string: {
      const auto& text = tree.get_ref<const std::string&>();
      if (!can_be_plain_scalar(text)) out << YAML::DoubleQuoted;
      out << text;
      break;
    }
    case nlohmann::json::value_t::null:
      out << YAML::Null;
      break;
    default:
      out << tree.dump();  // true, 12 and 0.5 are the same in JSON and YAML
  }
}

}  // namespace

std::string to_yaml(const nlohmann::json& tree) {
  YAML::Emitter out;
  emit(out, tree);
  return std::string(out.c_str()) + "\n";
}

}  // namespace tilewright
