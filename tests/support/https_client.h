// Requests to an API server for tests, through libcurl: another client than the one under test.
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
  long status = 0;   // 0: there was no answer
  std::string body;  // without an answer: why

  bool ok() const { return status >= 200 && status < 300; }
  // The body as JSON; discarded() where it is none.
  nlohmann::json json() const { return nlohmann::json::parse(body, nullptr, false); }
  // What an API server's Status says, or else the body.
  std::string message() const;
};

// How a client proves who it is: by a certificate, a bearer token or not at all.
struct Credentials {
  CertificatePaths certificate;
  std::string token;
};

class HttpsClient {
 public:
  // Keeps its connection from one request to the next; for one thread.
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
  // RFC 7386: members given replace, null removes.
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
