#include "controller/api/document.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "controller/api/scalar.h"

namespace tilewright::api {
namespace {

constexpr int kMaxDepth = 64;
// A manifest of 1 MiB holds fewer; aliases may not multiply into more.
constexpr int kMaxValues = 100'000;

// The line (from 1) of the first byte that is not UTF-8 (RFC 3629), or 0.
int line_of_invalid_utf8(std::string_view text) {
  int line = 1;
  for (std::size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    if (lead == '\n') ++line;
    const int more = lead < 0x80                   ? 0
                     : lead >= 0xC2 && lead < 0xE0 ? 1
                     : lead >= 0xE0 && lead < 0xF0 ? 2
                     : lead >= 0xF0 && lead < 0xF5 ? 3
                                                   : -1;
    if (more < 0 || i + static_cast<std::size_t>(more) >= text.size() + (more == 0 ? 1 : 0)) {
      return line;
    }
    for (int k = 1; k <= more; ++k) {
      const auto next = static_cast<unsigned char>(text[i + static_cast<std::size_t>(k)]);
      unsigned char least = 0x80;
      unsigned char most = 0xBF;
      if (k == 1) {
        if (lead == 0xE0) least = 0xA0;  // shorter forms exist
        if (lead == 0xED) most = 0x9F;   // surrogates
        if (lead == 0xF0) least = 0x90;
        if (lead == 0xF4) most = 0x8F;  // beyond U+10FFFF
      }
      if (next < least || next > most) return line;
    }
    i += 1 + static_cast<std::size_t>(more);
  }
  return 0;
}

class Converter {
 public:
  explicit Converter(Document& document) : document_(document) {}

  nlohmann::json convert(const YAML::Node& node, const std::string& path, int depth) {
    if (!document_.errors.empty()) return nullptr;
    if (depth > kMaxDepth) return refuse(node, path, "found more than 64 levels of nesting");
    if (++values_ > kMaxValues) return refuse(node, path, "found more than 100000 values");
    // An empty item's mark is where the next one begins.
    if (!path.empty() && !node.IsNull() && !node.Mark().is_null()) {
      document_.positions.set(path, node.Mark().line + 1);
    }
    switch (node.Type()) {
      case YAML::NodeType::Undefined:
      case YAML::NodeType::Null:
        return nullptr;
      case YAML::NodeType::Scalar:
        // "?" marks a plain scalar without a tag, "!" a quoted one.
        if (node.Tag() == "?" || node.Tag().empty()) return resolve_plain_scalar(node.Scalar());
        return node.Scalar();
      case YAML::NodeType::Sequence: {
        nlohmann::json list = nlohmann::json::array();
        for (std::size_t i = 0; i < node.size(); ++i) {
          list.push_back(convert(node[i], element_path(path, i), depth + 1));
        }
        return list;
      }
      case YAML::NodeType::Map:
        return convert_map(node, path, depth);
    }
    return nullptr;
  }

 private:
  nlohmann::json convert_map(const YAML::Node& node, const std::string& path, int depth) {
    nlohmann::json object = nlohmann::json::object();
    for (const auto& entry : node) {
      if (!entry.first.IsScalar()) {
        return refuse(entry.first, path, "found a key that is no text, expected a field's name");
      }
      const std::string key = entry.first.Scalar();
      if (key == "<<") {
        return refuse(entry.first, path, "found the merge key <<, expected the fields written out");
      }
      const std::string child = member_path(path, key);
      if (object.contains(key)) {
        const int first = document_.positions.line_of(child);
        return refuse(entry.first, child,
                      fmt::format("found twice, first on line {}, expected once", first));
      }
      object[key] = convert(entry.second, child, depth + 1);
      // The key's line is where a reader looks, also for a value that starts below it.
      if (!entry.first.Mark().is_null()) {
        document_.positions.set(child, entry.first.Mark().line + 1);
      }
    }
    return object;
  }

  nlohmann::json refuse(const YAML::Node& node, const std::string& path, std::string message) {
    document_.errors.push_back({path, node.Mark().line + 1, std::move(message)});
    return nullptr;
  }

  Document& document_;
  int values_ = 0;
};

}  // namespace

int Positions::line_of(std::string_view path) const {
  while (!path.empty()) {
    const auto found = lines_.find(path);
    if (found != lines_.end()) return found->second;
    const std::size_t cut = path.find_last_of(".[");
    path = cut == std::string_view::npos ? std::string_view() : path.substr(0, cut);
  }
  return 0;
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

Document read_yaml(std::string_view text) {
  Document document;
  const auto refuse = [&document](int line, std::string message) {
    document.errors.push_back({"", line, std::move(message)});
    return document;
  };
  if (text.size() > kMaxManifestBytes) {
    return refuse(0, fmt::format("found {} bytes, expected a manifest of at most {} bytes",
                                 text.size(), kMaxManifestBytes));
  }
  if (const int line = line_of_invalid_utf8(text)) {
    return refuse(line, "found bytes that are not UTF-8, expected UTF-8 text");
  }
  if (text.find('\0') != std::string_view::npos) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(text.find('\0'));
    return refuse(1 + static_cast<int>(std::count(text.begin(), end, '\n')),
                  "found a zero byte, expected text");
  }
  try {
    std::vector<YAML::Node> documents = YAML::LoadAll(std::string(text));
    std::erase_if(documents, [](const YAML::Node& node) { return !node || node.IsNull(); });
    if (documents.empty()) return refuse(0, "found nothing, expected a manifest");
    if (documents.size() > 1) {
      return refuse(documents[1].Mark().line + 1,
                    fmt::format("found a second YAML document, expected one manifest a file"));
    }
    document.tree = Converter(document).convert(documents[0], "", 0);
  } catch (const YAML::Exception& failure) {
    return refuse(failure.mark.is_null() ? 0 : failure.mark.line + 1,
                  fmt::format("found what is not YAML: {}", failure.msg));
  }
  return document;
}

}  // namespace tilewright::api
