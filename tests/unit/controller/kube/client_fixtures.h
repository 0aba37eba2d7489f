// A client of a scripted server, and answers for its scripts.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "controller/kube/client.h"
#include "tests/unit/controller/kube/scripted_server.h"

namespace tilewright::kube {

// Retries without delay, so that no test waits.
inline SenderOptions impatient() {
  SenderOptions options;
  options.retry.first_delay = std::chrono::nanoseconds(1);
  options.retry.most_delay = std::chrono::nanoseconds(1);
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
                                          SenderOptions options = impatient()) {
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
