// A fake API server that records and accepts every request, except those with scripted responses.
// Watches stay open without events.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/controller/client/client_fixtures.h"

namespace tilewright::controller::testing {

using nlohmann::json;

// Volcano's, of the namespace ns.
inline constexpr const char* kPodGroups =
    "/apis/scheduling.volcano.sh/v1beta1/namespaces/ns/podgroups";

class ScriptedApi {
 public:
  struct Answer {
    int status = 200;
    std::string body;
  };

  explicit ScriptedApi(kube::SenderOptions options = kube::no_retry_delay())
      : client_(kube::client_for(server_, std::move(options))) {}

  // Sets the response to all further requests like "POST /api/v1/namespaces/ns/pods" (without
  // query).
  void answer(const std::string& request, int status, const json& body) {
    const std::lock_guard lock(mutex_);
    answers_[request] = {status, body.dump()};
  }
  void forget_answers() {
    const std::lock_guard lock(mutex_);
    answers_.clear();
  }
  // Answers a list, for example "GET /api/v1/pods".
  void answer_list(const std::string& request, const std::vector<json>& items) {
    answer(request, 200,
           {{"kind", "List"}, {"metadata", {{"resourceVersion", "1"}}}, {"items", items}});
  }
  static json status(int code, const std::string& reason, const std::string& message = "no") {
    return {{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", message}};
  }

  kube::Client& client() { return *client_; }

  struct Request {
    std::string what;  // "POST /api/v1/namespaces/ns/pods"
    json body;
  };
  // Requests in order of arrival, without the events, which the recorder posts from its own thread.
  std::vector<Request> seen() const { return requests(false); }
  std::vector<Request> events() const { return requests(true); }
  std::vector<std::string> order() const {
    std::vector<std::string> order;
    for (const Request& each : seen()) order.push_back(each.what);
    return order;
  }
  // Returns the body of the only request like `what`; fails the test if there is not exactly one.
  json body_of(const std::string& what) const {
    std::vector<json> found;
    for (const Request& each : seen()) {
      if (each.what == what) found.push_back(each.body);
    }
    EXPECT_EQ(found.size(), 1U) << what;
    return found.empty() ? json() : found.front();
  }

 private:
  static std::string described(const kube::ScriptedRequest& request) {
    return request.method + " " + request.target.substr(0, request.target.find('?'));
  }
  std::vector<Request> requests(bool events) const {
    std::vector<Request> result;
    for (const auto& request : server_.requests()) {
      const std::string what = described(request);
      if (what.ends_with("/events") != events) continue;
      result.push_back({what, json::parse(request.body, nullptr, false)});
    }
    return result;
  }
  void serve(kube::ScriptedConnection& connection, const kube::ScriptedRequest& request) {
    if (request.target.find("watch=1") != std::string::npos) {
      connection.begin_chunks();
      return connection.await_close();
    }
    Answer answer;
    {
      const std::lock_guard lock(mutex_);
      const auto scripted = answers_.find(described(request));
      answer = scripted == answers_.end() ? default_answer(request) : scripted->second;
    }
    connection.answer(answer.status, answer.body);
  }
  // A success response with a resourceVersion and a UID.
  Answer default_answer(const kube::ScriptedRequest& request) {
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
  const std::unique_ptr<kube::Client> client_;
};

}  // namespace tilewright::controller::testing
