// A server that behaves as the Hugging Face hub does: repositories of models and data sets with
// their API, downloads with redirects to a storage server at another address, and injected faults.
//
//   /[datasets/]NAME/resolve/REVISION/FILE     HEAD and GET with X-Repo-Commit, ETag, Range;
//                                              a large (LFS) file redirects to the storage server,
//                                              another one to /api/resolve-cache, as on the hub
//   /api/{models,datasets}/NAME[/revision/REVISION]         id, sha, siblings
//   /api/{models,datasets}/NAME/tree/REVISION[/DIRECTORY]   files with their sizes and checksums
//   /api/datasets/NAME/paths-info/REVISION                  the same for given paths
//
// The storage server refuses requests with a token, as a server with signed URLs does.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/controller/client/scripted_server.h"

namespace tilewright::testing {

enum class HubFault {
  kStatus,     // responds with `status`, `headers` and an empty body
  kRateLimit,  // responds with 429 and `Retry-After: retry_after`
  kHalf,       // closes the connection after half of the body
  kCorrupt,    // changes a byte of the body
  kReset,      // closes the connection without a response
  kSilence,    // sends half of the body, then nothing until the client closes the connection
  kHold,       // responds only after release()
};

// A fault applies to the first `times` requests with this method and this text in their target.
struct HubFaultRule {
  HubFault kind = HubFault::kStatus;
  std::string method = {}, target = {};  // empty: any
  int times = 1;
  int status = 500;
  int retry_after = 0;       // seconds
  std::string headers = {};  // lines that end with CR LF
};

struct HubRequest {
  std::string method, target;
  std::string token;     // without "Bearer "
  std::string range;     // the header field
  bool storage = false;  // to the storage server
};

class HubServer {
 public:
  enum class Type { kModel, kDataset };
  static constexpr std::size_t kLfsBytes = 10 << 10;  // smaller files are stored in git

  HubServer();
  ~HubServer();
  HubServer(const HubServer&) = delete;
  HubServer& operator=(const HubServer&) = delete;

  // The value of HF_ENDPOINT.
  std::string endpoint() const;

  // Adds or replaces a file; the repository then has a new commit. Files of at least kLfsBytes, and
  // those named *.safetensors, *.bin or *.parquet, are LFS files.
  void add_file(Type type, const std::string& repository, const std::string& path,
                std::string content);
  // Adds the files of DIRECTORY/models/ORG/NAME and DIRECTORY/datasets/ORG/NAME.
  void add_directory(const std::filesystem::path& directory);
  // Requests for `name` redirect to the repository `target`.
  void add_alias(Type type, const std::string& name, const std::string& target);
  // Requests need this token: 401 without a token, 403 with another one.
  void require_token(Type type, const std::string& repository, const std::string& token);

  void add_fault(HubFaultRule rule);
  // Ends kHold for the requests that wait and those to come.
  void release();

  // The commit of the branch main. Earlier commits stay available.
  std::string commit(Type type, const std::string& repository) const;
  std::vector<HubRequest> requests() const;
  // The number of requests with this method, and this text in their target.
  int count(const std::string& method, const std::string& target) const;
  // Waits until count() is at least `expected`; false after 20 s.
  bool await(const std::string& method, const std::string& target, int expected) const;

 private:
  struct File {
    std::string content, oid, sha256;  // oid: of git's blob
    bool lfs = false;
    const std::string& etag() const { return lfs ? sha256 : oid; }
  };
  using Snapshot = std::map<std::string, std::shared_ptr<const File>>;  // by path
  struct Repository {
    std::map<std::string, Snapshot> commits;
    std::string main;
    std::string token;
    bool gated = false;
  };
  using Key = std::pair<Type, std::string>;
  using Connection = kube::ScriptedConnection;
  using Request = kube::ScriptedRequest;
  struct Route;

  void serve(Connection& connection, const Request& request, bool storage);
  void serve_hub(Connection& connection, const Request& request, const HubFaultRule* fault);
  void serve_storage(Connection& connection, const Request& request, const HubFaultRule* fault);
  void serve_api(Connection& connection, const Request& request, const Route& route,
                 const Snapshot& snapshot, const std::string& commit);
  void send_file(Connection& connection, const Request& request, const File& file,
                 const std::string& headers, const HubFaultRule* fault);
  static void send_status(Connection& connection, const Request& request, int status,
                          const std::string& headers, const std::string& body = "");
  std::unique_ptr<HubFaultRule> take_fault(const Request& request);

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::map<Key, Repository> repositories_;
  std::map<Key, std::string> aliases_;
  std::map<std::string, std::shared_ptr<const File>> blobs_;  // by SHA-256
  std::vector<HubFaultRule> faults_;
  std::vector<HubRequest> requests_;
  bool released_ = false;
  // Last: their threads use the above.
  std::unique_ptr<kube::ScriptedServer> storage_, hub_;
};

}  // namespace tilewright::testing
