#include "common/json/tree_limits.h"

#include <fmt/format.h>

namespace tilewright {

TreeLimits::Refusal TreeLimits::add_text(std::size_t bytes) {
  text_bytes_ += bytes;
  if (text_bytes_ <= max_text_bytes_) return std::nullopt;
  return fmt::format("found more than {} bytes of text", max_text_bytes_);
}

TreeLimits::Refusal TreeLimits::add_value(std::size_t depth, std::size_t text_bytes) {
  if (depth > kMaxDepth) return fmt::format("found more than {} levels of nesting", kMaxDepth);
  if (++values_ > max_values_) return fmt::format("found more than {} values", max_values_);
  return add_text(text_bytes);
}

TreeLimits::Refusal TreeLimits::add_name(std::size_t name_bytes, std::size_t path_bytes) {
  if (path_bytes > kMaxPathBytes) {
    return fmt::format("found field names of {} bytes in one path, expected at most {}", path_bytes,
                       kMaxPathBytes);
  }
  return add_text(name_bytes);
}

TreeLimits::Refusal TreeLimits::add_tree(const nlohmann::json& tree, std::size_t depth,
                                         std::size_t path_bytes) {
  const std::size_t text =
      tree.is_string() ? tree.get_ref<const std::string&>().size() : std::size_t{0};
  if (Refusal refusal = add_value(depth, text)) return refusal;
  if (!tree.is_structured()) return std::nullopt;
  for (const auto& child : tree.items()) {
    std::size_t bytes = path_bytes;
    if (tree.is_object()) {
      bytes += child.key().size();
      if (Refusal refusal = add_name(child.key().size(), bytes)) return refusal;
    }
    if (Refusal refusal = add_tree(child.value(), depth + 1, bytes)) return refusal;
  }
  return std::nullopt;
}

}  // namespace tilewright
