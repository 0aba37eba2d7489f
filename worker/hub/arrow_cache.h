// Data sets that the datasets library has prepared as Arrow files:
//
//   CACHE/ORG___NAME/CONFIG/VERSION/HASH/dataset_info.json
//                                       /NAME-SPLIT.arrow
//                                       /NAME-SPLIT-00000-of-00002.arrow
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tilewright::hub {

struct ArrowDataset {
  std::string config;
  std::map<std::string, std::vector<std::filesystem::path>> splits;
};

// Returns the most recently prepared data set of this name and configuration of which every file is
// there; an empty `config` finds the only one. nullopt if there is none, or several configurations.
// A directory that cannot be read is not there.
std::optional<ArrowDataset> find_arrow_dataset(const std::filesystem::path& datasets_cache,
                                               const std::string& name, const std::string& config);

}  // namespace tilewright::hub
