// One HTTP exchange through libcurl, without redirects or retries. http.cpp is the only file that
// includes libcurl.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/clock.h"
#include "common/net/wait.h"

namespace tilewright::hub {

// Bounds of what a server can make this process store.
inline constexpr std::size_t kMaxHeadBytes = 256 << 10;
inline constexpr std::size_t kMaxBodyBytes = 16 << 20;
// A transfer that brings fewer bytes in the stall time has failed.
inline constexpr std::uint64_t kMinStallBytes = 1024;

struct HttpHead {
  int status = 0;
  std::map<std::string, std::string, std::less<>> fields;  // names in lower case

  // Empty if the field is missing.
  const std::string& field(std::string_view name) const;
  // The field as a decimal number; nullopt if it is missing or is none.
  std::optional<std::uint64_t> number(std::string_view name) const;
  bool ok() const { return status >= 200 && status < 300; }
  bool redirect() const { return status >= 300 && status < 400 && !field("location").empty(); }
};

struct HttpRequest {
  std::string url;
  bool head = false;       // HEAD, else GET
  std::string token;       // sent as a bearer token; empty: none
  std::uint64_t from = 0;  // greater than 0: requests the bytes from this offset
  // Takes the body of a response with a 2xx status in pieces. Without it, and for other statuses,
  // the body is stored. An exception that it throws ends the exchange and reaches send()'s caller.
  std::function<void(const HttpHead&, std::string_view)> on_body;
};

struct HttpResponse {
  enum class Problem {
    kNone,
    kUnreachable,  // no connection, or a server that closes it without a response
    kTimedOut,     // no connection in time, or too few bytes in the stall time
    kCutOff,       // the connection ended within the response
    kCertificate,  // the server's certificate does not verify
    kMalformed,    // not HTTP, or a head or body beyond the bounds
  };
  Problem problem = Problem::kNone;
  std::string reason;  // of the problem, without secrets: "Could not resolve host: hub.invalid"
  HttpHead head;
  std::string body;
  std::optional<Duration> retry_after;
};

struct HttpSettings {
  Duration connect_timeout = std::chrono::seconds(10);
  Duration stall_timeout = std::chrono::seconds(30);
  std::filesystem::path ca_file, ca_directory;  // empty: the system's
  const net::WakeUp* cancel = nullptr;
};

// Not thread-safe. Keeps connections open between requests.
class HttpClient {
 public:
  explicit HttpClient(HttpSettings settings);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  // Throws Failure(kTerminated) if the exchange is cancelled, and Failure(kUsage) if it needs a
  // proxy and the variable of the proxy is no URL of one.
  HttpResponse send(const HttpRequest& request);

 private:
  struct Connections;
  HttpSettings settings_;
  std::unique_ptr<Connections> connections_;
};

// The absolute URL of a redirect's Location; nullopt if it is not http or https, or not a URL.
std::optional<std::string> resolve_location(const std::string& url, const std::string& location);

// Scheme, host and port: "https://huggingface.co:443". Empty if `url` is not a URL with a host and
// a port below 65536.
std::string origin_of(const std::string& url);

}  // namespace tilewright::hub
