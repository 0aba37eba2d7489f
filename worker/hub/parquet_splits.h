// Finds the splits of a data set by the names of its Parquet files, as the datasets library does.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace tilewright::hub {

// Relative paths by split, in the order of their shards.
using SplitFiles = std::map<std::string, std::vector<std::string>>;

struct ParquetSplits {
  std::string config;
  SplitFiles splits;
};

// Selects the files of a configuration: CONFIG/SPLIT-00000-of-00002.parquet (also with a hash
// before the suffix), CONFIG/SPLIT.parquet, or CONFIG/SPLIT/NAME.parquet. Files at the top or in
// data/ belong to the configuration "default". An empty `config` selects the only one.
//
// `where` is the data set's name for messages. Throws Failure(kData) if there is no such
// configuration, if `config` is empty and there are several, or if a shard is missing.
ParquetSplits find_parquet_splits(const std::vector<std::string>& files, const std::string& config,
                                  const std::string& where);

}  // namespace tilewright::hub
