#include "worker/hub/model.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <set>

#include "common/base/files.h"
#include "common/base/printable.h"
#include "common/contract/model_files.h"
#include "worker/hub/client.h"
#include "worker/hub/download.h"
#include "worker/hub/repository_cache.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxIndexBytes = 64 << 20;
constexpr std::size_t kMaxWeightFiles = 1000;

// Where the files of a model come from.
class Source {
 public:
  virtual ~Source() = default;
  // Whether the model has this file; afterwards it is at path().
  virtual bool get(const std::string& file) = 0;
  virtual fs::path path(const std::string& file) const = 0;
};

// The shards that an index names in "weight_map": {tensor: file}.
std::set<std::string> shards_of(const fs::path& index) {
  const std::string content = read_regular_file(index, kMaxIndexBytes, ExitCode::kModel).or_throw();
  const nlohmann::json root = nlohmann::json::parse(content, nullptr, false);
  const auto map = root.is_object() ? root.find("weight_map") : root.end();
  if (!root.is_object() || map == root.end() || !map->is_object() || map->empty()) {
    throw Failure(
        ExitCode::kModel,
        fmt::format("{}: found no object \"weight_map\", expected the file of each tensor",
                    index.string()));
  }
  std::set<std::string> shards;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !is_file_name(file.get_ref<const std::string&>())) {
      throw Failure(ExitCode::kModel,
                    fmt::format("{}: weight_map[{}] is no relative path of a file", index.string(),
                                quoted_excerpt(tensor)));
    }
    shards.insert(file.get<std::string>());
    if (shards.size() > kMaxWeightFiles) {
      throw Failure(ExitCode::kModel, fmt::format("{}: found more than {} shards, the limit",
                                                  index.string(), kMaxWeightFiles));
    }
  }
  return shards;
}

// Returns what is missing; empty: the parts are complete.
std::string get_parts(const ModelParts& parts, Source& source) {
  if (parts.config && !source.get(model_files::kConfig)) return model_files::kConfig;
  if (parts.tokenizer) {
    for (const char* file : model_files::kTokenizerFiles) source.get(file);
    source.get(model_files::kConfig);  // may name the tokenizer's class
    if (!source.get(model_files::kTokenizer) && !source.get(model_files::kVocabulary)) {
      return fmt::format("{} or {}", model_files::kTokenizer, model_files::kVocabulary);
    }
  }
  if (!parts.weights) return {};
  for (const model_files::Weights& weights : model_files::kWeights) {
    if (!source.get(weights.name)) continue;
    if (weights.is_index) {
      for (const std::string& shard : shards_of(source.path(weights.name))) {
        if (!source.get(shard)) return fmt::format("{}, which {} names", shard, weights.name);
      }
    }
    return {};
  }
  return "model.safetensors, pytorch_model.bin or an index of one of them";
}

// A snapshot as it is in the cache.
class CachedSource : public Source {
 public:
  CachedSource(const RepositoryCache& cache, std::string commit)
      : cache_(cache), commit_(std::move(commit)) {}

  bool get(const std::string& file) override {
    const Presence presence = cache_.find(commit_, file);
    if (presence == Presence::kUnknown) all_known_ = false;
    return presence == Presence::kPresent;
  }
  fs::path path(const std::string& file) const override { return cache_.file(commit_, file); }
  // Whether the hub could add nothing to what get() returned.
  bool all_known() const { return all_known_; }

 private:
  const RepositoryCache& cache_;
  const std::string commit_;
  bool all_known_ = true;
};

// A commit of the hub; downloads what the cache lacks.
class RemoteSource : public Source {
 public:
  RemoteSource(const RepositoryCache& cache, const std::string& revision, const HubOptions& options)
      : cache_(cache), options_(options), client_(options) {
    // Whether the commit has the file or not, the answer names the commit.
    first_ = client_.head(cache.repository(), revision, model_files::kConfig);
    if (first_.commit.empty()) {
      throw Failure(ExitCode::kModel,
                    fmt::format("{}: {} has no config.json and names no commit",
                                cache.repository().description(), options.endpoint));
    }
  }

  bool get(const std::string& file) override {
    const Presence presence = cache_.find(commit(), file);
    if (presence != Presence::kUnknown) return presence == Presence::kPresent;
    const RemoteFile remote =
        file == model_files::kConfig ? first_ : client_.head(cache_.repository(), commit(), file);
    if (!remote.exists) {
      cache_.mark_absent(commit(), file);
      return false;
    }
    if (remote.commit != commit()) {
      throw Failure(ExitCode::kModel,
                    fmt::format("{}: {} answers with the commit {} for {} of commit {}",
                                cache_.repository().description(), options_.endpoint, remote.commit,
                                file, commit()));
    }
    download_file(cache_, remote, file, client_, options_);
    return true;
  }
  fs::path path(const std::string& file) const override { return cache_.file(commit(), file); }
  const std::string& commit() const { return first_.commit; }

 private:
  const RepositoryCache& cache_;
  const HubOptions& options_;
  HubClient client_;
  RemoteFile first_;  // config.json
};

fs::path download_model(const RepositoryCache& cache, const ModelRequest& request,
                        const HubOptions& options) {
  RemoteSource source(cache, request.revision, options);
  if (const std::string missing = get_parts(request.parts, source); !missing.empty()) {
    throw Failure(ExitCode::kModel,
                  fmt::format("{}: commit {} on {} has no {}", cache.repository().description(),
                              source.commit(), options.endpoint, missing));
  }
  // Last: a run without network trusts the ref.
  cache.set_commit(request.revision, source.commit());
  return cache.snapshot(source.commit());
}

// Also if the cache cannot be written: the model that it holds is whole.
bool cache_suffices(const Failure& failure) {
  return hub_failed(failure) || failure.code() == ExitCode::kOutput ||
         failure.code() == ExitCode::kOutputUnavailable;
}

}  // namespace

fs::path resolve_model(const ModelRequest& request, const HubOptions& options) {
  const std::string& name = request.name_or_path;
  std::error_code ignored;
  if (fs::is_directory(name, ignored)) return name;
  const bool config_alone =
      request.parts.config && !request.parts.tokenizer && !request.parts.weights;
  if (fs::is_regular_file(name, ignored)) {
    if (config_alone) return name;
    throw Failure(
        ExitCode::kModel,
        fmt::format("{}: is a file, expected a model directory or a name on the hub", name));
  }
  check_request({RepositoryType::kModel, name}, request.revision,
                "a model directory or a name on the hub such as google-bert/bert-base-uncased");
  const RepositoryCache cache(options.model_cache(), {RepositoryType::kModel, name});
  std::optional<fs::path> cached;
  std::string missing = fmt::format("no snapshot of the revision {}", request.revision);
  if (const auto commit = cache.commit_of(request.revision)) {
    CachedSource source(cache, *commit);
    missing = get_parts(request.parts, source);
    if (missing.empty()) cached = cache.snapshot(*commit);
    if (cached && source.all_known()) {
      // Of the request for the weights only: a job also asks for the config and the tokenizer.
      if (!options.offline && request.parts.weights && *commit != request.revision) {
        options.report(
            fmt::format("model {}: {} is commit {} in the cache; not compared with the hub", name,
                        request.revision, *commit));
      }
      return *cached;
    }
    missing = "no " + missing;
  }
  if (options.offline) {
    if (cached) return *cached;
    throw Failure(ExitCode::kModel,
                  fmt::format("model {}: found no local directory of this name and {} in the cache "
                              "{}, expected a cached model or a model directory, because "
                              "HF_HUB_OFFLINE forbids a download",
                              name, missing, cache.folder().string()));
  }
  try {
    return download_model(cache, request, options);
  } catch (const Failure& failure) {
    if (!cached && failure.code() == ExitCode::kHubUnavailable) {
      throw Failure(
          failure.code(),
          fmt::format("{}; found no local directory {} either: without a connection copy the "
                      "files to a directory and name that",
                      failure.what(), name));
    }
    if (!cached || !cache_suffices(failure)) throw;
    options.report(fmt::format("{}; using the cached model {}", failure.what(), cached->string()));
    return *cached;
  }
}

}  // namespace tilewright::hub
