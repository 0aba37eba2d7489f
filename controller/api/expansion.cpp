#include "controller/api/expansion.h"

namespace tilewright::api {
namespace {

// `dollar`: the text in place of $$.
template <typename Lookup>
std::string expand_with(std::string_view text, std::size_t limit, const Lookup& lookup,
                        std::string_view dollar = "$") {
  std::string out;
  std::size_t i = 0;
  while (i < text.size() && out.size() <= limit) {
    if (text[i] != '$' || i + 1 == text.size()) {
      out += text[i++];
    } else if (text[i + 1] == '$') {
      out += dollar;
      i += 2;
    } else if (text[i + 1] == '(') {
      const std::size_t close = text.find(')', i + 2);
      if (close == std::string_view::npos) {
        out += "$(";
        i += 2;
      } else {
        out += lookup(text.substr(i + 2, close - i - 2));
        i = close + 1;
      }
    } else {
      out += text.substr(i, 2);
      i += 2;
    }
  }
  if (out.size() > limit) out.resize(limit + 1);
  return out;
}

// The value of a name, or the reference to it.
auto value_or_reference(const Environment& variables) {
  return [&variables](std::string_view name) {
    const auto found = variables.find(name);
    return found != variables.end() ? found->second : "$(" + std::string(name) + ")";
  };
}

}  // namespace

std::string expand(std::string_view text, const Environment& variables) {
  return expand_with(text, kMaxExpandedBytes, value_or_reference(variables));
}

std::string expand_known(std::string_view text, const Environment& variables) {
  return expand_with(text, kMaxExpandedBytes, value_or_reference(variables), "$$");
}

std::vector<std::string> unknown_references(std::string_view text, const Environment& variables) {
  std::vector<std::string> unknown;
  expand_with(text, text.size(), [&](std::string_view name) {
    if (variables.find(name) == variables.end()) unknown.emplace_back(name);
    return std::string();
  });
  return unknown;
}

Environment expand_environment(const std::vector<std::pair<std::string, std::string>>& list,
                               const Environment& outer) {
  Environment expanded;
  for (const auto& [name, value] : list) {
    expanded[name] = expand_with(value, kMaxExpandedBytes, [&](std::string_view reference) {
      const auto earlier = expanded.find(reference);
      if (earlier != expanded.end()) return earlier->second;
      const auto inherited = outer.find(reference);
      return inherited != outer.end() ? inherited->second : "$(" + std::string(reference) + ")";
    });
  }
  return expanded;
}

}  // namespace tilewright::api
