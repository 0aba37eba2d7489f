// Tests of the client, the informer and leader election on an API server.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "controller/client/informer.h"
#include "controller/client/leader_election.h"
#include "tests/support/cluster_test.h"
#include "tests/support/silent_logger.h"

namespace tilewright::kube {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;
using tilewright::testing::make_silent_logger;

const ResourceType kConfigMaps = {"", "v1", "configmaps", "ConfigMap"};

net::Wait default_timeout() { return net::within(seconds(30)); }

class KubeClientTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    client = make_client();
    // Unique names for each test, so that no cleanup is needed.
    static int tests = 0;
    namespace_name = fmt::format("kube-client-{}", ++tests);
    const auto made = client->create(guard, {"", "v1", "namespaces", "Namespace", false}, "",
                                     {{"metadata", {{"name", namespace_name}}}}, default_timeout());
    ASSERT_TRUE(made.ok()) << made.error().sentence();
  }
  std::unique_ptr<Client> make_client() {
    ConfigSources sources;
    sources.kubeconfig = control_plane().kubeconfig();
    return Client::make(load_config(sources).or_throw()).or_throw();
  }
  Json config_map(const std::string& name, const std::string& value = "1") {
    return {{"metadata",
             {{"name", name}, {"namespace", namespace_name}, {"labels", {{"test", "yes"}}}}},
            {"data", {{"value", value}}}};
  }
  Json created(const std::string& name) {
    auto made =
        client->create(guard, kConfigMaps, namespace_name, config_map(name), default_timeout());
    EXPECT_TRUE(made.ok()) << made.error().sentence();
    return made.ok() ? *made : Json();
  }

  const WriteGuard guard = WriteGuard::unfenced();
  std::unique_ptr<Client> client;
  std::string namespace_name;
};

TEST_F(KubeClientTest, CreatesReadsChangesAndDeletes) {
  Json map = created("a");
  EXPECT_TRUE(client->create(guard, kConfigMaps, namespace_name, config_map("a"), default_timeout())
                  .is(ErrorKind::kAlreadyExists));
  EXPECT_EQ((*client->get(kConfigMaps, namespace_name, "a", default_timeout()))["data"]["value"],
            "1");
  EXPECT_TRUE(
      client->get(kConfigMaps, namespace_name, "b", default_timeout()).is(ErrorKind::kNotFound));

  const auto metadata = client->create(guard, kConfigMaps, namespace_name, config_map("c"),
                                       default_timeout(), ResponseFormat::kMetadata);
  ASSERT_TRUE(metadata.ok()) << metadata.error().sentence();
  EXPECT_EQ((*metadata)["kind"], "PartialObjectMetadata");
  EXPECT_EQ((*metadata)["metadata"]["name"], "c");
  EXPECT_FALSE(metadata->contains("data"));
  EXPECT_TRUE(client
                  ->create(guard, kConfigMaps, namespace_name, config_map("c"), default_timeout(),
                           ResponseFormat::kMetadata)
                  .is(ErrorKind::kAlreadyExists))
      << "errors are still reported";

  map["data"]["value"] = "2";
  const auto updated = client->update(guard, kConfigMaps, map, default_timeout());
  ASSERT_TRUE(updated.ok()) << updated.error().sentence();
  EXPECT_TRUE(client->update(guard, kConfigMaps, map, default_timeout()).is(ErrorKind::kConflict))
      << "its resourceVersion is outdated";

  const auto merged = client->patch(guard, kConfigMaps, namespace_name, "a", PatchType::kMerge,
                                    {{"data", {{"more", "3"}}}}, {}, default_timeout());
  ASSERT_TRUE(merged.ok()) << merged.error().sentence();
  EXPECT_EQ((*merged)["data"], (Json{{"value", "2"}, {"more", "3"}}));

  DeleteOptions other;
  other.uid = "00000000-0000-0000-0000-000000000000";
  EXPECT_TRUE(client->remove(guard, kConfigMaps, namespace_name, "a", other, default_timeout())
                  .is(ErrorKind::kConflict));
  DeleteOptions own;
  own.uid = map["metadata"]["uid"];
  EXPECT_TRUE(client->remove(guard, kConfigMaps, namespace_name, "a", own, default_timeout()).ok());
  EXPECT_TRUE(client->remove(guard, kConfigMaps, namespace_name, "a", own, default_timeout())
                  .is(ErrorKind::kNotFound));
}

TEST_F(KubeClientTest, AppliesServerSide) {
  Json map = config_map("applied");
  map["apiVersion"] = "v1";
  map["kind"] = "ConfigMap";
  PatchOptions first, second;
  first.field_manager = "first";
  second.field_manager = "second";
  ASSERT_TRUE(client
                  ->patch(guard, kConfigMaps, namespace_name, "applied", PatchType::kApply, map,
                          first, default_timeout())
                  .ok());
  map["data"]["value"] = "2";
  EXPECT_TRUE(client
                  ->patch(guard, kConfigMaps, namespace_name, "applied", PatchType::kApply, map,
                          second, default_timeout())
                  .is(ErrorKind::kConflict))
      << "the first manager owns the field";
  second.force = true;
  EXPECT_TRUE(client
                  ->patch(guard, kConfigMaps, namespace_name, "applied", PatchType::kApply, map,
                          second, default_timeout())
                  .ok());
}

TEST_F(KubeClientTest, ReportsServerErrors) {
  Json bad = config_map("UPPER");
  const auto refused = client->create(guard, kConfigMaps, namespace_name, bad, default_timeout());
  ASSERT_TRUE(refused.is(ErrorKind::kInvalid));
  EXPECT_THAT(refused.error().message, HasSubstr("UPPER"));
  EXPECT_TRUE(client
                  ->create(guard, kConfigMaps, "no-such-namespace", {{"metadata", {{"name", "a"}}}},
                           default_timeout())
                  .is(ErrorKind::kNotFound));
}

TEST_F(KubeClientTest, ListsInPages) {
  for (int i = 0; i < 5; ++i) created(fmt::format("map-{}", i));
  std::set<std::string> names;
  const ListSink sink{[&names] { names.clear(); },
                      [&names](Json&& item) { names.insert(item["metadata"]["name"]); }};
  ListOptions options;
  options.page_limit = 2;
  const auto version =
      client->list(kConfigMaps, {namespace_name, "test=yes", ""}, options, sink, default_timeout());
  ASSERT_TRUE(version.ok()) << version.error().sentence();
  EXPECT_EQ(names.size(), 5U);
  EXPECT_FALSE(version->empty());
  EXPECT_EQ(client->counter().counts().at({"list", "configmaps", "200"}), 3U);
}

TEST_F(KubeClientTest, WatchesUntilTheServerEndsTheStream) {
  const Json map = created("a");
  created("b");
  WatchOptions options;
  options.resource_version = map["metadata"]["resourceVersion"];
  options.server_timeout = seconds(2);
  auto stream = client->watch(kConfigMaps, {namespace_name, "", ""}, options, default_timeout());
  ASSERT_TRUE(stream.ok()) << stream.error().sentence();
  std::vector<std::string> names;
  while (true) {
    auto next = (*stream)->next(default_timeout());
    if (auto* event = std::get_if<WatchEvent>(&next)) {
      if (event->type == EventType::kAdded) names.push_back(event->object["metadata"]["name"]);
      continue;
    }
    ASSERT_TRUE(std::holds_alternative<WatchStream::End>(next))
        << std::get<ApiError>(next).sentence();
    EXPECT_EQ(std::get<WatchStream::End>(next), WatchStream::End::kServerClosed);
    break;
  }
  EXPECT_EQ(names, std::vector<std::string>{"b"});
}

// The names in an informer's cache, with a method that waits for changes.
struct NameWatch {
  NameWatch(Client& client, const std::string& namespace_name)
      : informer(
            client, options(namespace_name),
            [](const Json& object) { return object["data"].value("value", std::string()); },
            {[this](const auto&) { changed.notify_all(); },
             [this](const auto&, const auto&) { changed.notify_all(); },
             [this](const auto&, bool) { changed.notify_all(); }},
            make_silent_logger()) {
    informer.start();
  }
  static ReflectorOptions options(const std::string& namespace_name) {
    ReflectorOptions options;
    options.type = kConfigMaps;
    options.selection = {namespace_name, "test=yes", ""};
    return options;
  }
  bool await(const std::set<std::string>& names) {
    std::unique_lock lock(mutex);
    const MonotonicTime until = monotonic_now() + seconds(90);
    while (true) {
      std::set<std::string> now;
      for (const auto& item : informer.all()) now.insert(item->name);
      if (now == names) return true;
      if (monotonic_now() >= until) return false;
      // A change between the check and the wait is seen in the next iteration.
      changed.wait_for(lock, std::chrono::milliseconds(100));
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  Informer<std::string> informer;
};

TEST_F(KubeClientTest, InformerSurvivesAnApiServerRestart) {
  created("a");
  created("b");
  NameWatch watched(*client, namespace_name);
  ASSERT_TRUE(watched.informer.wait_synced(default_timeout()));
  ASSERT_TRUE(watched.await({"a", "b"}));
  created("c");
  ASSERT_TRUE(watched.await({"a", "b", "c"}));

  control_plane().kill_api_server();
  control_plane().start_api_server();
  // The pooled connections are closed by now; an idempotent write is retried on a new one.
  created("d");
  const auto removed =
      client->remove(guard, kConfigMaps, namespace_name, "a", {}, default_timeout());
  EXPECT_TRUE(removed.ok() || removed.is(ErrorKind::kTransport));
  if (!removed.ok()) {
    ASSERT_TRUE(
        client->remove(guard, kConfigMaps, namespace_name, "a", {}, default_timeout()).ok());
  }
  EXPECT_TRUE(watched.await({"b", "c", "d"}));
}

TEST_F(KubeClientTest, PassesTheLeaseBetweenTwoElectors) {
  struct Leadership {
    std::mutex mutex;
    std::condition_variable changed;
    std::shared_ptr<const WriteGuard> guard;
    ElectionCallbacks callbacks() {
      return {[this](std::shared_ptr<const WriteGuard> given) {
                const std::lock_guard lock(mutex);
                guard = std::move(given);
                changed.notify_all();
              },
              [this] {
                const std::lock_guard lock(mutex);
                guard.reset();
              },
              {}};
    }
    bool await() {
      std::unique_lock lock(mutex);
      return changed.wait_for(lock, seconds(30), [this] { return guard != nullptr; });
    }
  } first_leadership, second_leadership;
  const auto options = [this](const std::string& identity) {
    ElectionOptions made;
    made.namespace_name = namespace_name;
    made.lease_name = "leader";
    made.elector.identity = identity;
    made.elector.retry_period = std::chrono::milliseconds(200);
    return made;
  };
  const auto holder = [this] {
    return decode_lease(
        *client->get(resource::leases(), namespace_name, "leader", default_timeout()));
  };
  LeaderElection first(*client, options("first"), first_leadership.callbacks(),
                       make_silent_logger());
  first.start();
  ASSERT_TRUE(first_leadership.await());
  LeaderElection second(*client, options("second"), second_leadership.callbacks(),
                        make_silent_logger());
  second.start();
  EXPECT_EQ(holder().holder, "first");
  const auto old_guard = first_leadership.guard;
  first.stop();
  EXPECT_TRUE(
      client->create(*old_guard, kConfigMaps, namespace_name, config_map("late"), default_timeout())
          .is(ErrorKind::kFenced));
  ASSERT_TRUE(second_leadership.await());
  EXPECT_EQ(holder().holder, "second");
  EXPECT_GE(holder().transitions, 1);
  const auto fresh = client->create(*second_leadership.guard, kConfigMaps, namespace_name,
                                    config_map("fresh"), default_timeout());
  EXPECT_TRUE(fresh.ok()) << fresh.error().sentence();
  second.stop();
  EXPECT_EQ(holder().holder, "");
}

}  // namespace
}  // namespace tilewright::kube
