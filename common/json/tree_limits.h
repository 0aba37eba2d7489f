// Bounds of a tree that a person or a tenant wrote: a manifest, a kubeconfig, the spec of an object
// of the API server. A tree within them costs some 20 MB, and so do the messages about it.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

namespace tilewright {

// Below etcd's limit of 1.5 MiB for one object.
inline constexpr std::size_t kMaxManifestBytes = 1 << 20;

// Counts what a reader takes in. Every function returns a sentence ("found more than ...") once a
// bound is exceeded.
class TreeLimits {
 public:
  using Refusal = std::optional<std::string>;

  static constexpr std::size_t kMaxDepth = 64;
  static constexpr std::size_t kMaxValues = 100'000;  // for each kMaxManifestBytes of text
  // Of the names in the path of one value. Every message repeats the path.
  static constexpr std::size_t kMaxPathBytes = 1024;

  // `max_text_bytes`: of all names and strings. Only the aliases of YAML can exceed it in a file of
  // that size.
  explicit TreeLimits(std::size_t max_text_bytes = kMaxManifestBytes)
      : max_text_bytes_(max_text_bytes),
        max_values_(max_text_bytes / kMaxManifestBytes * kMaxValues) {}

  // A value inside `depth` others, with `text_bytes` bytes of its own.
  Refusal add_value(std::size_t depth, std::size_t text_bytes);
  // The name of a member. `path_bytes`: of all names in its path, this one included.
  Refusal add_name(std::size_t name_bytes, std::size_t path_bytes);
  // A value inside `depth` others with all that is in it, under names of `path_bytes` bytes.
  Refusal add_tree(const nlohmann::json& tree, std::size_t depth, std::size_t path_bytes);

 private:
  Refusal add_text(std::size_t bytes);

  std::size_t max_text_bytes_;
  std::size_t max_values_;
  std::size_t values_ = 0;
  std::size_t text_bytes_ = 0;
};

}  // namespace tilewright
