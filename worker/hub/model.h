// The directory of a model that --model_name_or_path names.
#pragma once

#include <filesystem>
#include <string>

#include "worker/hub/options.h"

namespace tilewright::hub {

// What the caller needs of a model. --tokenizer_name and --config_name name only a part.
struct ModelParts {
  bool config = true;  // config.json
  // tokenizer.json or vocab.txt, and tokenizer_config.json, ... as far as they exist.
  bool tokenizer = true;
  // model.safetensors, or model.safetensors.index.json with its shards, or pytorch_model.bin, or
  // pytorch_model.bin.index.json with its shards: the first that exists.
  bool weights = true;
};

struct ModelRequest {
  std::string name_or_path;  // a directory, "bert-base-uncased", "google-bert/bert-base-uncased"
  std::string revision = "main";  // a branch, a tag or a commit; unused for a directory
  ModelParts parts = {};
};

// Returns a directory with the files of the model:
// 1. the path itself, if it is a directory, whatever it holds; or, of a config alone, a file;
// 2. the snapshot in the cache, if every file of the parts is there or known not to exist. The hub
//    is not asked for a later commit;
// 3. a download of the revision's latest commit into the cache. If the hub is not available,
//    refuses access or has no such model (401, 403, 404), or the cache cannot be written, and the
//    cache holds the config, the weights and a tokenizer of a commit, as far as they are asked for,
//    that one.
//
// Failure, where no such cached commit replaces the download: kModel if there is no such model, if
// access is refused, or if options.offline is set; kHubUnavailable for transient errors; kOutput or
// kOutputUnavailable if the cache cannot be written. In any case kModel if the hub has no such
// revision or it lacks one of the parts; kTerminated when cancelled.
std::filesystem::path resolve_model(const ModelRequest& request, const HubOptions& options);

}  // namespace tilewright::hub
