// A client connected to a scripted server, and responses for scripts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "controller/client/client.h"
#include "tests/unit/controller/client/scripted_server.h"

namespace tilewright::kube {

// Retries without delay, to keep the tests fast.
inline SenderOptions no_retry_delay() {
  SenderOptions options;
  options.retry.initial_delay = std::chrono::nanoseconds(1);
  options.retry.max_delay = std::chrono::nanoseconds(1);
  options.jitter = [] { return 0.0; };
  return options;
}

inline ClusterConfig config_for(const ScriptedServer& server) {
  ClusterConfig config;
  config.server = server.url();
  config.credentials = no_credentials();
  return config;
}

inline std::unique_ptr<Client> client_for(const ScriptedServer& server,
                                          SenderOptions options = no_retry_delay()) {
  return Client::make(config_for(server), std::move(options)).or_throw();
}

inline std::string object_text(const std::string& name, const std::string& version,
                               const std::string& uid = "u") {
  return Json{{"metadata",
               {{"namespace", "ns"}, {"name", name}, {"uid", uid}, {"resourceVersion", version}}}}
      .dump();
}

inline std::string event_text(const std::string& type, const std::string& object) {
  return R"({"type":")" + type + R"(","object":)" + object + "}\n";
}

inline std::string list_text(const std::string& version, const std::string& items,
                             const std::string& token = "") {
  return R"({"kind":"List","metadata":{"resourceVersion":")" + version + R"(","continue":")" +
         token + R"("},"items":[)" + items + "]}";
}

inline std::string status_text(int code, const std::string& reason) {
  return Json{{"kind", "Status"}, {"code", code}, {"reason", reason}, {"message", "as scripted"}}
      .dump();
}

}  // namespace tilewright::kube
