#include "tests/support/https_client.h"

#include <curl/curl.h>

#include <stdexcept>

namespace tilewright::testing {
namespace {

// Requests that take longer fail.
constexpr long kTimeoutSeconds = 60;

std::size_t append(char* data, std::size_t size, std::size_t count, void* target) {
  static_cast<std::string*>(target)->append(data, size * count);
  return size * count;
}

}  // namespace

struct HttpsClient::Handle {
  CURL* curl = curl_easy_init();
  ~Handle() { curl_easy_cleanup(curl); }
};

std::string HttpResponse::message() const {
  const nlohmann::json object = json();
  return object.is_object() ? object.value("message", body) : body;
}

HttpsClient::HttpsClient(std::string base_url, std::filesystem::path authority,
                         Credentials credentials)
    : base_url_(std::move(base_url)),
      authority_(std::move(authority)),
      credentials_(std::move(credentials)),
      handle_(std::make_unique<Handle>()) {
  if (handle_->curl == nullptr) throw std::runtime_error("libcurl does not start");
}

HttpsClient::~HttpsClient() = default;

HttpResponse HttpsClient::send(const std::string& method, const std::string& path,
                               const std::string& body, const std::string& content_type) {
  CURL* curl = handle_->curl;
  curl_easy_reset(curl);  // resets the options, keeps the connection
  HttpResponse response;
  const std::string url = base_url_ + path;
  const auto set = [curl](CURLoption option, auto value) { curl_easy_setopt(curl, option, value); };
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_CUSTOMREQUEST, method.c_str());
  set(CURLOPT_CAINFO, authority_.c_str());
  set(CURLOPT_NOPROXY, "*");
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_TIMEOUT, kTimeoutSeconds);
  if (!credentials_.certificate.certificate.empty()) {
    set(CURLOPT_SSLCERT, credentials_.certificate.certificate.c_str());
    set(CURLOPT_SSLKEY, credentials_.certificate.key.c_str());
  }
  curl_slist* headers = curl_slist_append(nullptr, "Accept: application/json");
  if (!credentials_.token.empty()) {
    headers = curl_slist_append(headers, ("Authorization: Bearer " + credentials_.token).c_str());
  }
  if (!content_type.empty()) {
    headers = curl_slist_append(headers, ("Content-Type: " + content_type).c_str());
    set(CURLOPT_POSTFIELDS, body.c_str());
    set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  }
  set(CURLOPT_HTTPHEADER, headers);
  set(CURLOPT_WRITEFUNCTION, append);
  set(CURLOPT_WRITEDATA, &response.body);
  const CURLcode outcome = curl_easy_perform(curl);
  curl_slist_free_all(headers);
  if (outcome != CURLE_OK) return {0, method + " " + url + ": " + curl_easy_strerror(outcome)};
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &response.status);
  return response;
}

}  // namespace tilewright::testing
