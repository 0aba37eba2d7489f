#include "worker/hub/dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "common/contract/environment.h"
#include "worker/hub/arrow_cache.h"
#include "worker/hub/client.h"
#include "worker/hub/download.h"
#include "worker/hub/parquet_splits.h"
#include "worker/hub/repository_cache.h"

namespace tilewright::hub {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMainRevision = "main";
constexpr std::size_t kMaxFiles = 100'000;

// Names that the hub redirects. huggingface_hub's cache has a directory for each name, the datasets
// library uses the target.
struct Alias {
  std::string_view name, target;
};
constexpr std::array kAliases = {Alias{"squad", "rajpurkar/squad"},
                                 Alias{"squad_v2", "rajpurkar/squad_v2"},
                                 Alias{"glue", "nyu-mll/glue"}};

std::vector<std::string> names_in_caches(const std::string& name) {
  std::vector<std::string> names = {name};
  for (const Alias& alias : kAliases) {
    if (name == alias.name) names.emplace_back(alias.target);
    if (name == alias.target) names.emplace_back(alias.name);
  }
  return names;
}

DatasetFiles parquet_files(const ParquetSplits& found, const fs::path& root) {
  DatasetFiles files;
  files.config = found.config;
  for (const auto& [split, paths] : found.splits) {
    for (const std::string& path : paths) files.splits[split].push_back(root / path);
  }
  return files;
}

// The .parquet files in a directory and the two levels below it. Directories below it that may not
// be read, such as the lost+found of a volume, are left out.
std::vector<std::string> list_directory(const fs::path& root) {
  std::vector<std::string> names;
  std::error_code error;
  const auto check = [&] {
    if (!error) return;
    throw Failure(ExitCode::kData,
                  fmt::format("{}: cannot list the directory: {}", root.string(), error.message()));
  };
  const fs::directory_iterator probe(root, error);  // the recursive one would skip the root too
  check();
  const auto options = fs::directory_options::follow_directory_symlink |
                       fs::directory_options::skip_permission_denied;
  fs::recursive_directory_iterator entry(root, options, error);
  for (check(); entry != fs::recursive_directory_iterator(); entry.increment(error), check()) {
    if (entry.depth() >= 2) entry.disable_recursion_pending();
    if (entry->path().extension() == ".parquet") {
      names.push_back(entry->path().lexically_relative(root).string());
    }
    if (names.size() > kMaxFiles) {
      throw Failure(ExitCode::kData, fmt::format("{}: found more than {} Parquet files, the limit",
                                                 root.string(), kMaxFiles));
    }
  }
  return names;
}

// A commit and its files, from the API.
struct Listing {
  std::string commit;
  std::vector<std::string> files;
};

Listing list_remote(HubClient& client, const Repository& repository, const std::string& revision,
                    const HubOptions& options) {
  const nlohmann::json info = client.info(repository, revision);
  const auto fail = [&](const std::string& found) {
    return Failure(repository.code(),
                   fmt::format("{}: the API of {} answers with {}, expected \"sha\" and "
                               "\"siblings\"",
                               repository.description(), options.endpoint, found));
  };
  Listing listing;
  if (const auto sha = info.find("sha"); sha != info.end() && sha->is_string()) {
    listing.commit = sha->get<std::string>();
  }
  if (!is_commit(listing.commit)) throw fail("no commit");
  const auto siblings = info.find("siblings");
  if (siblings == info.end() || !siblings->is_array()) throw fail("no list of files");
  if (siblings->size() > kMaxFiles) throw fail(fmt::format("{} files", siblings->size()));
  for (const nlohmann::json& sibling : *siblings) {
    const auto name = sibling.is_object() ? sibling.find("rfilename") : sibling.end();
    if (!sibling.is_object() || name == sibling.end() || !name->is_string()) {
      throw fail("a file without a name");
    }
    // A file with another name cannot be a data file.
    if (is_file_name(name->get_ref<const std::string&>())) {
      listing.files.push_back(name->get<std::string>());
    }
  }
  return listing;
}

DatasetFiles download_dataset(const DatasetRequest& request, const HubOptions& options) {
  const Repository repository{RepositoryType::kDataset, request.name};
  HubClient client(options);
  const Listing listing = list_remote(client, repository, request.revision, options);
  const ParquetSplits found = find_parquet_splits(listing.files, request.config, request.name);
  std::vector<std::string> files;
  for (const auto& [split, shards] : found.splits) {
    files.insert(files.end(), shards.begin(), shards.end());
  }
  const auto is_cached = [&](const RepositoryCache& cache, const std::string& file) {
    return cache.find(listing.commit, file) == Presence::kPresent;
  };
  const auto finish = [&](const RepositoryCache& cache) {
    cache.finish(listing.commit, found.config);
    // Last: a run without network trusts the ref.
    cache.set_commit(request.revision, listing.commit);
  };
  for (const std::string& name : names_in_caches(request.name)) {
    const RepositoryCache cache(options.cache_dir, {RepositoryType::kDataset, name});
    if (!std::ranges::all_of(files, [&](const auto& file) { return is_cached(cache, file); })) {
      continue;
    }
    try {
      finish(cache);
    } catch (const Failure&) {  // NOLINT(bugprone-empty-catch): the cache may be read-only
    }
    return parquet_files(found, cache.snapshot(listing.commit));
  }
  const RepositoryCache cache(options.cache_dir, repository);
  cache.begin(listing.commit, found.config, files);
  for (const std::string& file : files) {
    if (is_cached(cache, file)) continue;
    const RemoteFile remote = client.head(repository, listing.commit, file);
    if (!remote.exists || remote.commit != listing.commit) {
      throw Failure(repository.code(),
                    fmt::format("{}: {} has no {} in commit {}, which its API lists",
                                repository.description(), options.endpoint, file, listing.commit));
    }
    download_file(cache, remote, file, client, options);
  }
  finish(cache);
  return parquet_files(found, cache.snapshot(listing.commit));
}

// The Parquet files in the cache; nullopt if no snapshot holds all shards of the configuration.
std::optional<DatasetFiles> find_cached(const DatasetRequest& request, const HubOptions& options) {
  for (const std::string& name : names_in_caches(request.name)) {
    const RepositoryCache cache(options.cache_dir, {RepositoryType::kDataset, name});
    std::vector<std::string> commits;
    if (const auto commit = cache.commit_of(request.revision)) commits.push_back(*commit);
    // The datasets library downloads commits and writes no ref.
    if (request.revision == kMainRevision)
      std::ranges::move(cache.commits(), std::back_inserter(commits));
    for (const std::string& commit : commits) {
      try {
        const ParquetSplits found = find_parquet_splits(cache.files(commit), request.config, name);
        // The ref may be from the download of another configuration.
        if (!cache.is_partial(commit, found.config))
          return parquet_files(found, cache.snapshot(commit));
      } catch (const Failure&) {
        continue;
      }
    }
  }
  return std::nullopt;
}

}  // namespace

DatasetFiles resolve_dataset(const DatasetRequest& request, const HubOptions& options) {
  const std::string& name = request.name;
  std::error_code ignored;
  if (request.may_be_directory && fs::is_directory(name, ignored)) {
    return parquet_files(find_parquet_splits(list_directory(name), request.config, name), name);
  }
  check_request({RepositoryType::kDataset, name}, request.revision,
                "a directory of Parquet files or a name on the hub such as rajpurkar/squad");
  if (request.revision == kMainRevision) {
    for (const std::string& cached_name : names_in_caches(name)) {
      if (auto found = find_arrow_dataset(options.datasets_cache, cached_name, request.config)) {
        if (!options.datasets_offline) {
          options.report(
              fmt::format("data set {}: as the datasets library has prepared it in {}; not "
                          "compared with the hub",
                          name, options.datasets_cache.string()));
        }
        return {DatasetFiles::Format::kArrow, std::move(found->config), std::move(found->splits)};
      }
    }
  }
  if (options.datasets_offline) {
    if (auto cached = find_cached(request, options)) return *std::move(cached);
    throw Failure(
        ExitCode::kData,
        fmt::format("data set {}{}: not in the caches {} and {}, expected a cached data "
                    "set or a directory, because {} forbids a download",
                    name, request.config.empty() ? "" : ", configuration " + request.config,
                    options.cache_dir.string(), options.datasets_cache.string(),
                    options.offline ? env::kHfHubOffline : env::kHfDatasetsOffline));
  }
  try {
    return download_dataset(request, options);
  } catch (const Failure& failure) {
    auto cached = hub_failed(failure) ? find_cached(request, options) : std::nullopt;
    if (!cached) throw;
    options.report(fmt::format("{}; using the cached data set", failure.what()));
    return *std::move(cached);
  }
}

}  // namespace tilewright::hub
