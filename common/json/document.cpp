#include "common/json/document.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "common/json/scalar.h"

namespace tilewright {
namespace {

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
        if (lead == 0xE0) least = 0xA0;  // overlong encoding
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

// The code unit of \uXXXX at `at`.
std::optional<std::uint32_t> code_unit_at(std::string_view text, std::size_t at) {
  constexpr std::size_t kDigits = 4;
  if (text.substr(at, 2) != "\\u" || text.size() < at + 2 + kDigits) return std::nullopt;
  std::uint32_t unit = 0;
  const char* const end = text.data() + at + 2 + kDigits;
  const auto parsed = std::from_chars(text.data() + at + 2, end, unit, 16);
  return parsed.ec == std::errc() && parsed.ptr == end ? std::optional(unit) : std::nullopt;
}

// JSON escapes a character above U+FFFF as a pair of surrogates, which YAML does not have: writes
// \UXXXXXXXX in place of each. Returns other text unchanged.
std::string join_surrogates(std::string_view text) {
  std::string joined;
  if (text.find("\\u") == std::string_view::npos || !nlohmann::json::accept(text)) {
    return std::string(text);
  }
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] != '\\') {
      joined += text[i++];
      continue;
    }
    const auto high = code_unit_at(text, i);
    if (!high || *high < 0xD800 || *high > 0xDBFF) {
      joined += text.substr(i, 2);
      i += 2;
      continue;
    }
    // JSON has no high surrogate without a low one.
    joined += fmt::format(
        "\\U{:08X}", 0x10000 + ((*high - 0xD800) << 10) + (*code_unit_at(text, i + 6) - 0xDC00));
    i += 12;
  }
  return joined;
}

// Thrown through the YAML parser, which has no other way to stop.
struct Refusal {
  FieldError error;
};

// Builds the tree from the parser's events. Counts each value before it stores it, and an alias
// like a copy of what it stands for, so that a small file cannot make a large tree.
class DocumentBuilder : public YAML::EventHandler {
 public:
  DocumentBuilder(std::size_t max_documents, std::size_t max_bytes)
      : limits_(max_bytes), max_documents_(max_documents) {}

  std::vector<Document> take_documents() {
    std::vector<Document> documents;
    for (Node& root : roots_) {
      documents.push_back({std::move(root.value), Positions(std::move(root.place)), {}});
    }
    return documents;
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    // The parser gives empty documents without end at a token that begins none, such as a comma.
    if (mark.pos == document_start_) {
      throw Refusal{{"", mark.line + 1, "found invalid YAML: a character that begins no value"}};
    }
    document_start_ = mark.pos;
    anchors_.clear();
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    if (open_.empty()) return;  // an empty document, as after a last "---"
    // The parser reports the position of the next item for an empty item.
    add(mark, anchor, {nullptr, {}}, 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    // "?" marks a plain scalar without a tag, "!" a quoted one.
    const bool plain = tag == "?" || tag.empty();
    Node node{plain ? resolve_plain_scalar(value) : nlohmann::json(value), place_at(mark)};
    if (expects_name()) {
      add_name(mark, value);
      remember(mark, anchor, node);
    } else {
      add(mark, anchor, std::move(node), value.size());
    }
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_as_name(mark);
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) refuse(mark, "found an alias inside the value that it stands for");
    count_tree(mark, found->second.value);
    Node copy = found->second;
    copy.place.line = mark.line + 1;
    attach(std::move(copy));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    begin(mark, anchor, nlohmann::json::array());
  }
  void OnSequenceEnd() override { end(); }
  void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    begin(mark, anchor, nlohmann::json::object());
  }
  void OnMapEnd() override { end(); }

 private:
  struct Node {
    nlohmann::json value;
    Positions::Place place;
  };
  // An object or a list whose end has not been read.
  struct OpenNode {
    Node node;
    YAML::Mark mark;
    YAML::anchor_t anchor = 0;
    std::size_t path_bytes = 0;  // of the names up to this value
    // Of the member that is being read:
    std::optional<std::string> name;
    int name_line = 0;
  };

  static Positions::Place place_at(const YAML::Mark& mark) { return {mark.line + 1, {}, {}}; }

  bool expects_name() const {
    return !open_.empty() && open_.back().node.value.is_object() && !open_.back().name;
  }
  std::size_t path_bytes() const {
    if (open_.empty()) return 0;
    return open_.back().path_bytes + (open_.back().name ? open_.back().name->size() : 0);
  }

  void begin(const YAML::Mark& mark, YAML::anchor_t anchor, nlohmann::json empty) {
    refuse_as_name(mark);
    refuse_more_documents(mark);
    count(mark, limits_.add_value(open_.size(), 0));
    open_.push_back({{std::move(empty), place_at(mark)}, mark, anchor, path_bytes(), {}, 0});
  }
  void end() {
    OpenNode closed = std::move(open_.back());
    open_.pop_back();
    remember(closed.mark, closed.anchor, closed.node);
    attach(std::move(closed.node));
  }
  void add(const YAML::Mark& mark, YAML::anchor_t anchor, Node node, std::size_t text_bytes) {
    refuse_as_name(mark);
    refuse_more_documents(mark);
    count(mark, limits_.add_value(open_.size(), text_bytes));
    remember(mark, anchor, node);
    attach(std::move(node));
  }

  void add_name(const YAML::Mark& mark, const std::string& name) {
    OpenNode& object = open_.back();
    count(mark, limits_.add_name(name.size(), object.path_bytes + name.size()));
    if (name == "<<") refuse(mark, "found the merge key <<, expected the fields written out");
    if (object.node.value.contains(name)) {
      const auto& members = object.node.place.children;
      const auto first = std::ranges::find(members, name, &Positions::Place::name);
      object.name = name;
      refuse(mark, fmt::format("found twice, first on line {}, expected once", first->line));
    }
    object.name = name;
    object.name_line = mark.line + 1;
  }

  void attach(Node node) {
    if (open_.empty()) {
      if (roots_.empty()) node.place.line = 0;  // of the manifest as a whole
      roots_.push_back(std::move(node));
      return;
    }
    OpenNode& parent = open_.back();
    if (parent.node.value.is_object()) {
      // The line of the name, even if the value starts on a later line.
      node.place.line = parent.name_line;
      node.place.name = *parent.name;
      parent.node.value[*parent.name] = std::move(node.value);
      parent.name.reset();
    } else {
      parent.node.value.push_back(std::move(node.value));
    }
    parent.node.place.children.push_back(std::move(node.place));
  }

  // For aliases. The copy counts, too.
  void remember(const YAML::Mark& mark, YAML::anchor_t anchor, const Node& node) {
    if (anchor == 0) return;
    count_tree(mark, node.value);
    anchors_[anchor] = node;
  }

  void count_tree(const YAML::Mark& mark, const nlohmann::json& tree) {
    count(mark, limits_.add_tree(tree, open_.size(), path_bytes()));
  }
  void count(const YAML::Mark& mark, const TreeLimits::Refusal& exceeded) {
    if (exceeded) refuse(mark, *exceeded);
  }
  void refuse_as_name(const YAML::Mark& mark) {
    if (!expects_name()) return;
    refuse(mark, "found a key that is not a string, expected the name of a field");
  }
  void refuse_more_documents(const YAML::Mark& mark) {
    if (!open_.empty() || roots_.size() < max_documents_) return;
    refuse(mark, max_documents_ == 1
                     ? "found a second YAML document, expected one manifest per file"
                     : fmt::format("found more than {} YAML documents", max_documents_));
  }
  [[noreturn]] void refuse(const YAML::Mark& mark, std::string message) {
    throw Refusal{{path(), mark.line + 1, std::move(message)}};
  }

  std::string path() const {
    std::string path;
    for (const OpenNode& node : open_) {
      if (node.node.value.is_array()) {
        path = element_path(path, node.node.value.size());
      } else if (node.name) {
        path = member_path(path, *node.name);
      }
    }
    return path;
  }

  TreeLimits limits_;
  std::vector<OpenNode> open_;  // from the root to the innermost
  std::map<YAML::anchor_t, Node> anchors_;
  std::vector<Node> roots_;  // of the documents
  std::size_t max_documents_;
  int document_start_ = -1;  // of the latest document, in bytes
};

// Line `line` (from 0) of `text`.
std::string_view line_of(std::string_view text, int line) {
  for (; line > 0 && !text.empty(); --line)
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return text.substr(0, text.find('\n'));
}

// The parser names what it expected, not that a wrong indentation is the most likely cause. Other
// errors can follow a tab too: JSON and lines of a quoted scalar may begin with one.
std::string describe_invalid_yaml(std::string_view text, const YAML::Exception& failure) {
  const auto says = [&](std::initializer_list<std::string_view> messages) {
    return std::ranges::find(messages, failure.msg) != messages.end();
  };
  const std::string_view line =
      failure.mark.is_null() ? std::string_view() : line_of(text, failure.mark.line);
  const bool has_tab =
      line.substr(0, line.find_first_not_of(" \t")).find('\t') != std::string_view::npos;
  if (has_tab && says({YAML::ErrorMsg::TAB_IN_INDENTATION, YAML::ErrorMsg::BLOCK_ENTRY,
                       YAML::ErrorMsg::MAP_KEY, YAML::ErrorMsg::MAP_VALUE})) {
    return "found invalid YAML: indented with a tab, expected spaces";
  }
  const bool indentation =
      says({YAML::ErrorMsg::END_OF_MAP, YAML::ErrorMsg::END_OF_SEQ, YAML::ErrorMsg::MAP_VALUE});
  return fmt::format("found invalid YAML: {}{}", failure.msg,
                     indentation ? "; check the indentation of this line" : "");
}

// The documents, or one with an error.
std::vector<Document> read_documents(std::string_view text, std::size_t max_documents,
                                     std::size_t max_bytes) {
  const auto refuse = [](int line, std::string message) {
    Document refused;
    refused.errors.push_back({"", line, std::move(message)});
    return std::vector<Document>{std::move(refused)};
  };
  if (text.size() > max_bytes) {
    return refuse(0, fmt::format("found {} bytes, expected a manifest of at most {} bytes",
                                 text.size(), max_bytes));
  }
  if (const int line = line_of_invalid_utf8(text)) {
    return refuse(line, "found bytes that are not UTF-8, expected UTF-8 text");
  }
  if (text.find('\0') != std::string_view::npos) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(text.find('\0'));
    return refuse(1 + static_cast<int>(std::count(text.begin(), end, '\n')),
                  "found a zero byte, expected UTF-8 text");
  }
  std::istringstream stream(join_surrogates(text));
  DocumentBuilder builder(max_documents, max_bytes);
  try {
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (Refusal& refusal) {
    Document refused;
    refused.errors.push_back(std::move(refusal.error));
    return {std::move(refused)};
  } catch (const YAML::Exception& failure) {
    return refuse(failure.mark.is_null() ? 0 : failure.mark.line + 1,
                  describe_invalid_yaml(text, failure));
  }
  std::vector<Document> documents = builder.take_documents();
  if (documents.empty()) return refuse(0, "found nothing, expected a manifest");
  return documents;
}

}  // namespace

Document read_yaml(std::string_view text, std::size_t max_bytes) {
  return std::move(read_documents(text, 1, max_bytes).front());
}

std::vector<Document> read_yaml_documents(std::string_view text) {
  return read_documents(text, kMaxDocuments, kMaxManifestBytes);
}

}  // namespace tilewright
