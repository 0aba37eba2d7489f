// HTTPS requests to an API server through libcurl, independent of the client under test.
#pragma once

#include <chrono>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/certificates.h"

namespace tilewright::testing {

struct HttpResponse {
  long status = 0;   // 0: no response
  std::string body;  // without a response: the error

  bool ok() const { return status >= 200 && status < 300; }
  // The body as JSON; discarded() if it is not JSON.
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  // The message of the API server's Status, otherwise the body.
  std::string message() const;
};

// Authentication of a client: a certificate, a bearer token or none.
struct Credentials {
  CertificatePaths certificate;
  std::string token;
};

class HttpsClient {
 public:
  // Reuses its connection; not thread-safe.
  HttpsClient(std::string base_url, std::filesystem::path authority, Credentials credentials);
  ~HttpsClient();
  HttpsClient(const HttpsClient&) = delete;
  HttpsClient& operator=(const HttpsClient&) = delete;

  HttpResponse get(const std::string& path) { return send("GET", path, "", ""); }
  HttpResponse post(const std::string& path, const nlohmann::json& body) {
    return send("POST", path, body.dump(), "application/json");
  }
  HttpResponse put(const std::string& path, const nlohmann::json& body) {
    return send("PUT", path, body.dump(), "application/json");
  }
  // RFC 7386: given members are replaced, null removes a member.
  HttpResponse merge_patch(const std::string& path, const nlohmann::json& body) {
    return send("PATCH", path, body.dump(), "application/merge-patch+json");
  }
  HttpResponse remove(const std::string& path) { return send("DELETE", path, "", ""); }
  HttpResponse send(const std::string& method, const std::string& path, const std::string& body,
                    const std::string& content_type);

 private:
  struct Handle;
  std::string base_url_;
  std::filesystem::path authority_;
  Credentials credentials_;
  std::unique_ptr<Handle> handle_;
};

}  // namespace tilewright::testing
