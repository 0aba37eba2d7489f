// Tests of LeadershipSession: whether it reconciles jobs.
#include "controller/operator/leadership_session.h"

#include <gmock/gmock.h>
#include <spdlog/sinks/base_sink.h>

#include <condition_variable>
#include <string_view>

#include "tests/support/silent_logger.h"
#include "tests/unit/controller/operator/scripted_api.h"

namespace tilewright::controller {
namespace {

using testing::ScriptedApi;
using tilewright::testing::make_silent_logger;

class AwaitableSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  // False if no line contains `text` within half a minute.
  bool await(std::string_view text) {
    std::unique_lock lock(lines_mutex_);
    return written_.wait_for(lock, std::chrono::seconds(30),
                             [&] { return lines_.find(text) != std::string::npos; });
  }

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    const std::lock_guard lock(lines_mutex_);
    lines_.append(message.payload.data(), message.payload.size()).append("\n");
    written_.notify_all();
  }
  void flush_() override {}

 private:
  std::mutex lines_mutex_;
  std::condition_variable written_;
  std::string lines_;
};

TEST(LeadershipSession, ServesOnlyOnceItCanReconcile) {
  constexpr const char* kGetKey = "GET /api/v1/namespaces/system/secrets/tilewright-master-key";
  ScriptedApi api;
  for (const char* list :
       {"GET /api/v1/pods", "GET /api/v1/nodes", "GET /apis/tilewright.dev/v1alpha1/trainjobs"}) {
    api.answer_list(list, {});
  }
  api.answer(kGetKey, 403, ScriptedApi::status(403, "Forbidden"));
  Caches caches(
      api.client(), "", [](const auto&, auto) {}, make_silent_logger());
  caches.start();
  Options options;
  options.own_namespace = "system";
  options.rendezvous_listen = {"127.0.0.1", 0};
  options.rendezvous_address = {"10.96.0.7", 29400};
  options.reconcilers = 1;
  Metrics metrics;
  const auto sink = std::make_shared<AwaitableSink>();
  LeadershipSession session(options, api.client(), caches, metrics,
                            std::make_shared<const kube::WriteGuard>(MonotonicTime::max()),
                            std::make_shared<Logger>("session", sink));
  ASSERT_TRUE(sink->await("the master key: "));
  EXPECT_FALSE(session.serving());
  // The key is 64 times "0", in base64.
  std::string key;
  for (int i = 0; i < 21; ++i) key += "MDAw";
  api.answer(kGetKey, 200, {{"data", {{"master-key", key + "MA=="}}}});
  ASSERT_TRUE(sink->await("started leading"));
  EXPECT_TRUE(session.serving());
}

}  // namespace
}  // namespace tilewright::controller
