#include "worker/checkpoint/sharded_weights.h"

#include <set>

#include "common/base/printable.h"
#include "worker/checkpoint/json_fields.h"

namespace tilewright::checkpoint {

ShardedWeights::ShardedWeights(const std::filesystem::path& index, ParseTensors parse,
                               ExitCode code)
    : WeightSource(index, code) {
  const JsonFields fields(index, code);
  const JsonFields map = fields.object("weight_map");
  std::map<std::string, std::string> file_by_tensor;
  std::set<std::string> files;
  for (const auto& [tensor, value] : map.json().items()) {
    const std::string file = value.is_string() ? value.get<std::string>() : "";
    if (!is_file_name(file)) {
      fail(fmt::format(
          "weight_map has {} for tensor {}, expected the name of a file in the same "
          "directory",
          value.is_string() ? quoted_excerpt(file) : "no string", quoted_excerpt(tensor)));
    }
    files.insert(file);
    file_by_tensor.emplace(tensor, file);
  }
  if (files.empty() || files.size() > kMaxShards) {
    fail(fmt::format("weight_map names {} files, expected 1 to {}", files.size(), kMaxShards));
  }
  for (const std::string& file : files) add_file(index.parent_path() / file, parse);
  for (const auto& [tensor, file] : file_by_tensor) {
    if (find(tensor) != nullptr && file_of(tensor).filename() == file) continue;
    fail(fmt::format("tensor {} is not in {}, where the index expects it", quoted_excerpt(tensor),
                     quoted_excerpt(file)));
  }
}

}  // namespace tilewright::checkpoint
