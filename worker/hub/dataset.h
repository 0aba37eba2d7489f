// The files of a data set that --dataset_name names.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "worker/hub/options.h"

namespace tilewright::hub {

struct DatasetRequest {
  std::string name;               // a directory, "squad", "rajpurkar/squad"
  std::string config = {};        // "mrpc"; empty: the only one of the data set
  std::string revision = "main";  // a branch, a tag or a commit; unused for a directory
  bool may_be_directory = true;   // false: the name is one of the hub
};

struct DatasetFiles {
  enum class Format { kParquet, kArrow };  // Arrow: the IPC stream format
  Format format = Format::kParquet;
  std::string config;
  // By split ("train", "validation_matched"), in the order of the rows.
  std::map<std::string, std::vector<std::filesystem::path>> splits;
};

// Finds the files of a data set:
// 1. in a directory of this path, if it may be one: CONFIG/SPLIT-00000-of-00001.parquet
//    (parquet_splits.h); directories in it that may not be read are left out;
// 2. in the cache of the datasets library, for the revision main: Arrow files;
// 3. on the hub: the Parquet files of the revision's latest commit, downloaded into the cache if
//    they are not there. Only the hub knows which files belong to a data set, so it is asked even
//    if the cache holds some. If it does not answer or refuses access, or options.datasets_offline
//    is set: the files in the cache, from the latest snapshot that has all shards.
// The names squad, squad_v2 and glue also find caches under the names that the hub redirects to.
//
// Failure: kData if there is no such data set or configuration, and, if it is not cached, if access
// is refused or options.datasets_offline is set; others as for resolve_model().
DatasetFiles resolve_dataset(const DatasetRequest& request, const HubOptions& options);

}  // namespace tilewright::hub
