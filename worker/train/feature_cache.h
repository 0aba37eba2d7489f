// A directory with the tokens of training data: a worker that starts again, and the other workers
// of the host, map them instead of tokenizing. Hugging Face's datasets keeps them likewise.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/clock.h"
#include "common/base/file_lock.h"
#include "common/base/log.h"
#include "common/net/wait.h"
#include "worker/tasks/dataset.h"
#include "worker/tasks/dataset_file.h"

namespace tilewright::train {

struct FeatureCacheOptions {
  std::filesystem::path directory;      // created when it is needed; empty: nothing is cached
  bool overwrite = false;               // replaces what the cache has
  std::string program;                  // identifies the build; empty: nothing is cached
  const net::WakeUp* cancel = nullptr;  // ends every wait with Failure(kTerminated)
  // Less input is tokenized in a tenth of a second.
  std::uintmax_t min_input_bytes = std::uintmax_t{4} << 20;
  // Of all files in the directory. The least recently used are removed.
  std::uintmax_t max_bytes = std::uintmax_t{8} << 30;
  // How long to wait for another process that tokenizes the same data.
  Duration wait = std::chrono::minutes(1);
};

class FeatureCache {
 public:
  FeatureCache(FeatureCacheOptions options, Logger& log)
      : options_(std::move(options)), log_(log) {}

  // What determines a data set besides the program and the content of its files.
  struct Key {
    std::string settings;                           // any text
    std::vector<std::filesystem::path> data_files;  // in order; empty: not in files, so not cached
    std::vector<std::filesystem::path> tokenizer_files;
    tasks::DatasetLimits limits;
  };

  // The data set of the key from the cache; else the one that `read` returns, which is then in the
  // cache. Of several processes one calls `read`, the others wait for it. A cache that cannot be
  // used costs a line in the log, not the training; failures of `read` and the cancellation are
  // thrown.
  tasks::Dataset get(const Key& key, const std::function<tasks::Dataset()>& read) const;

 private:
  std::optional<tasks::Dataset> find(const std::filesystem::path& path,
                                     const tasks::DatasetLimits& limits) const;
  std::optional<FileLock> lock(const std::filesystem::path& path) const;
  tasks::Dataset add(const std::filesystem::path& path, tasks::Dataset data,
                     const tasks::DatasetLimits& limits) const;
  void remove_old(const std::filesystem::path& kept) const;

  FeatureCacheOptions options_;
  Logger& log_;
};

}  // namespace tilewright::train
