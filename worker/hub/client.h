// Requests to the hub: redirects, the token, retries, and the message of each failure.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "worker/hub/http.h"
#include "worker/hub/options.h"
#include "worker/hub/repository.h"

namespace tilewright::hub {

// What the hub says about a file of one revision.
struct RemoteFile {
  bool exists = false;
  std::string commit;  // of the revision; empty if the file does not exist and the hub names none
  std::string etag;    // without quotation marks
  std::uint64_t size = 0;  // bytes
};

// Takes the content of a file.
class BodySink {
 public:
  virtual ~BodySink() = default;
  virtual std::uint64_t received() const = 0;  // bytes, from the start of the file
  virtual void restart() = 0;                  // drops all bytes
  virtual void write(std::string_view bytes) = 0;
};

// The hub has no repository of this name or refuses access to it (401, 403, 404).
class RepositoryRefused : public Failure {
 public:
  using Failure::Failure;
};

// Whether the hub did not answer or refuses access. Then, as in huggingface_hub and datasets, what
// it has given before replaces a download.
bool hub_failed(const Failure& failure);

// All functions throw Failure: the repository's code() for what a retry does not change, if it is
// the repository as RepositoryRefused; kHubUnavailable for transient errors, kTerminated when
// cancelled. Not thread-safe.
//
// The token goes to the origin (scheme, host, port) of the endpoint only: a redirect to the storage
// of large files has its own signature in the URL.
class HubClient {
 public:
  explicit HubClient(const HubOptions& options);

  RemoteFile head(const Repository& repository, const std::string& revision,
                  const std::string& file);

  // The API's description of a data set or model: "sha", "siblings", ...
  nlohmann::json info(const Repository& repository, const std::string& revision);

  // Passes the bytes of a file from sink.received() to `size` to the sink. Continues after a
  // connection breaks; starts again if the server sends the whole file.
  void download(const Repository& repository, const std::string& commit, const std::string& file,
                std::uint64_t size, BodySink& sink);

 private:
  // Where redirects of a HEAD request end: at the response that describes the file.
  enum class Until { kDescribed, kEnd };

  // For text that the server has sent, before a message shows it.
  std::string without_token(std::string text) const;
  HttpResponse follow(const Repository& repository, HttpRequest request, Until until);
  HttpResponse send_with_retries(const Repository& repository, const HttpRequest& request,
                                 Until until);
  // Throws if the response is an error other than a missing file; waits if it is transient and
  // this is not the last attempt. Returns whether to try again.
  bool wait_to_retry(const Repository& repository, const HttpResponse& response, int attempt);
  void pause(Duration duration) const;
  std::string describe_failure(const HttpResponse& response) const;
  [[noreturn]] void reject(const Repository& repository, const HttpResponse& response,
                           const std::string& what) const;

  const HubOptions& options_;
  const std::string origin_;
  HttpClient http_;
};

}  // namespace tilewright::hub
