// An API server that takes every request and notes it, but for those that a test answers itself.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/controller/kube/client_fixtures.h"

namespace tilewright::manager::testing {

using nlohmann::json;

class ScriptedApi {
 public:
  struct Answer {
    int status = 200;
    std::string body;
  };

  ScriptedApi() = default;

  // What "POST /api/v1/namespaces/ns/pods" is answered, from now on; without the query.
  void answer(const std::string& request, int status, const json& body) {
    const std::lock_guard lock(mutex_);
    answers_[request] = {status, body.dump()};
  }
  void forget_answers() {
    const std::lock_guard lock(mutex_);
    answers_.clear();
  }
  static json status(int code, const std::string& reason, const std::string& message = "no") {
    return {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}};
  }

  kube::Client& client() { return *client_; }

  struct Seen {
    std::string what;  // "POST /api/v1/namespaces/ns/pods"
    json body;
  };
  // In the order they came; the recorder's events, which come from a thread of its own, aside.
  std::vector<Seen> seen() const { return requests(false); }
  std::vector<Seen> events() const { return requests(true); }
  std::vector<std::string> order() const {
    std::vector<std::string> order;
    for (const Seen& each : seen()) order.push_back(each.what);
    return order;
  }
  // The one request of that kind.
  json body_of(const std::string& what) const {
    std::vector<json> found;
    for (const Seen& each : seen()) {
      if (each.what == what) found.push_back(each.body);
    }
    EXPECT_EQ(found.size(), 1U) << what;
    return found.empty() ? json() : found.front();
  }

 private:
  static std::string described(const kube::ScriptedRequest& request) {
    return request.method + " " + request.target.substr(0, request.target.find('?'));
  }
  std::vector<Seen> requests(bool events) const {
    std::vector<Seen> result;
    for (const auto& request : server_.requests()) {
      const std::string what = described(request);
      if (what.ends_with("/events") != events) continue;
      result.push_back({what, json::parse(request.body, nullptr, false)});
    }
    return result;
  }
  void serve(kube::ScriptedConnection& connection, const kube::ScriptedRequest& request) {
    Answer answer;
    {
      const std::lock_guard lock(mutex_);
      const auto scripted = answers_.find(described(request));
      answer = scripted == answers_.end() ? taken(request) : scripted->second;
    }
    connection.answer(answer.status, answer.body);
  }
  // As if it were done, with a version and a UID.
  Answer taken(const kube::ScriptedRequest& request) {
    if (request.method == "GET") return {404, status(404, "NotFound").dump()};
    if (request.method == "DELETE") return {200, R"({"kind":"Status","status":"Success"})"};
    json object = json::parse(request.body, nullptr, false);
    const std::string version = std::to_string(++versions_);
    object["metadata"]["resourceVersion"] = "made-" + version;
    if (request.method == "POST") object["metadata"]["uid"] = "uid-" + version;
    return {request.method == "POST" ? 201 : 200, object.dump()};
  }

  std::mutex mutex_;
  std::map<std::string, Answer> answers_;
  int versions_ = 0;
  kube::ScriptedServer server_{
      [this](auto& connection, const auto& request) { serve(connection, request); }};
  const std::unique_ptr<kube::Client> client_ = kube::client_for(server_);
};

}  // namespace tilewright::manager::testing
