// Names on the hub: repositories, revisions and files. They come from users and servers and become
// paths and URLs, so each is checked before it is used.
#pragma once

#include <string>
#include <string_view>

#include "common/base/result.h"

namespace tilewright::hub {

enum class RepositoryType { kModel, kDataset };

struct Repository {
  RepositoryType type = RepositoryType::kModel;
  std::string id;  // "bert-base-uncased", "google-bert/bert-base-uncased"

  // For messages: "model bert-base-uncased", "data set squad".
  std::string description() const;
  // The exit code of what is wrong with it: kModel or kData.
  ExitCode code() const {
    return type == RepositoryType::kModel ? ExitCode::kModel : ExitCode::kData;
  }
  // Its directory in the cache: "models--google-bert--bert-base-uncased".
  std::string folder() const;
  // The path of a file in a URL: "/datasets/squad/resolve/main/plain_text/a.parquet".
  std::string file_path(std::string_view revision, std::string_view file) const;
  // The path of the API: "/api/datasets/squad/revision/main".
  std::string api_path(std::string_view revision) const;
};

// Checks what a user gave as repository and revision before it becomes a path and a URL.
// `expected`: what the name may be. Throws Failure with the repository's code(), for the revision
// with kUsage.
void check_request(const Repository& repository, const std::string& revision,
                   std::string_view expected);

// Whether `name` is a relative path of at most 512 bytes without empty, "." and ".." parts, and
// without control characters, backslashes and quotation marks.
bool is_file_name(std::string_view name);

// 40 lower-case hexadecimal digits.
bool is_commit(std::string_view text);

// Whether `etag` can be the name of a file: letters, digits, '.', '_' and '-', at most 128.
bool is_etag(std::string_view etag);

}  // namespace tilewright::hub
