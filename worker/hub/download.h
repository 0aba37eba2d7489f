// Brings one file of a snapshot into the cache: lock, resumed download, checksum, rename, link.
#pragma once

#include <string>

#include "worker/hub/client.h"
#include "worker/hub/options.h"
#include "worker/hub/repository_cache.h"

namespace tilewright::hub {

// Afterwards cache.file(remote.commit, file) exists with the content that the hub describes. The
// bytes arrive in blobs/ETAG.incomplete, which stays after a broken connection so that the next run
// continues, and are renamed to blobs/ETAG once their checksum is right. A file with a wrong
// checksum is removed; if part of it is from an earlier run, it is downloaded once more.
//
// Fails as HubClient does; with output_error_code() if the cache cannot be written or has too
// little space; with the repository's code() on a wrong checksum.
void download_file(const RepositoryCache& cache, const RemoteFile& remote, const std::string& file,
                   HubClient& client, const HubOptions& options);

}  // namespace tilewright::hub
