// The client, the informer and the election against a real API server.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <condition_variable>
#include <mutex>
#include <set>

#include "controller/kube/informer.h"
#include "controller/kube/leader_election.h"
#include "tests/support/cluster_test.h"

namespace tilewright::kube {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

const ResourceType kMaps = resource::config_maps();

net::Wait soon() { return net::within(seconds(30)); }

class KubeClientTest : public testing::ClusterTest {
 protected:
  void SetUp() override {
    ClusterTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    client = make_client();
    // A name of its own for each test: nothing has to be cleared away.
    static int tests = 0;
    space = fmt::format("kube-client-{}", ++tests);
    const auto made = client->create(guard, {"", "v1", "namespaces", "Namespace", false}, "",
                                     {{"metadata", {{"name", space}}}}, soon());
    ASSERT_TRUE(made.ok()) << made.error().sentence();
  }
  std::unique_ptr<Client> make_client() {
    ConfigSources sources;
    sources.kubeconfig = control_plane().kubeconfig();
    return Client::make(load_config(sources).or_throw()).or_throw();
  }
  Json config_map(const std::string& name, const std::string& value = "1") {
    return {{"metadata", {{"name", name}, {"namespace", space}, {"labels", {{"test", "yes"}}}}},
            {"data", {{"value", value}}}};
  }
  Json created(const std::string& name) {
    auto made = client->create(guard, kMaps, space, config_map(name), soon());
    EXPECT_TRUE(made.ok()) << made.error().sentence();
    return made.ok() ? *made : Json();
  }

  const WriteGuard guard = WriteGuard::unfenced();
  std::unique_ptr<Client> client;
  std::string space;
};

TEST_F(KubeClientTest, CreatesReadsChangesAndDeletes) {
  Json map = created("a");
  EXPECT_TRUE(
      client->create(guard, kMaps, space, config_map("a"), soon()).is(Problem::kAlreadyExists));
  EXPECT_EQ((*client->get(kMaps, space, "a", soon()))["data"]["value"], "1");
  EXPECT_TRUE(client->get(kMaps, space, "b", soon()).is(Problem::kNotFound));

  const auto metadata =
      client->create(guard, kMaps, space, config_map("c"), soon(), Answer::kMetadata);
  ASSERT_TRUE(metadata.ok()) << metadata.error().sentence();
  EXPECT_EQ((*metadata)["kind"], "PartialObjectMetadata");
  EXPECT_EQ((*metadata)["metadata"]["name"], "c");
  EXPECT_FALSE(metadata->contains("data"));
  EXPECT_TRUE(client->create(guard, kMaps, space, config_map("c"), soon(), Answer::kMetadata)
                  .is(Problem::kAlreadyExists))
      << "an error comes as ever";

  map["data"]["value"] = "2";
  const auto updated = client->update(guard, kMaps, map, soon());
  ASSERT_TRUE(updated.ok()) << updated.error().sentence();
  EXPECT_TRUE(client->update(guard, kMaps, map, soon()).is(Problem::kConflict))
      << "its resourceVersion is an old one";

  const auto merged = client->patch(guard, kMaps, space, "a", PatchType::kMerge,
                                    {{"data", {{"more", "3"}}}}, {}, soon());
  ASSERT_TRUE(merged.ok()) << merged.error().sentence();
  EXPECT_EQ((*merged)["data"], (Json{{"value", "2"}, {"more", "3"}}));
  const Json steps = {{{"op", "remove"}, {"path", "/data/more"}}};
  ASSERT_TRUE(client->patch(guard, kMaps, space, "a", PatchType::kJson, steps, {}, soon()).ok());

  DeleteOptions other;
  other.uid = "00000000-0000-0000-0000-000000000000";
  EXPECT_TRUE(client->remove(guard, kMaps, space, "a", other, soon()).is(Problem::kConflict));
  DeleteOptions own;
  own.uid = map["metadata"]["uid"];
  EXPECT_TRUE(client->remove(guard, kMaps, space, "a", own, soon()).ok());
  EXPECT_TRUE(client->remove(guard, kMaps, space, "a", own, soon()).is(Problem::kNotFound));
}

TEST_F(KubeClientTest, AppliesOnTheServersSide) {
  Json map = config_map("applied");
  map["apiVersion"] = "v1";
  map["kind"] = "ConfigMap";
  PatchOptions first, second;
  first.field_manager = "first";
  second.field_manager = "second";
  ASSERT_TRUE(
      client->patch(guard, kMaps, space, "applied", PatchType::kApply, map, first, soon()).ok());
  map["data"]["value"] = "2";
  EXPECT_TRUE(client->patch(guard, kMaps, space, "applied", PatchType::kApply, map, second, soon())
                  .is(Problem::kConflict))
      << "the field is the first manager's";
  second.force = true;
  EXPECT_TRUE(
      client->patch(guard, kMaps, space, "applied", PatchType::kApply, map, second, soon()).ok());
}

TEST_F(KubeClientTest, SaysWhatTheServerRefuses) {
  Json bad = config_map("UPPER");
  const auto refused = client->create(guard, kMaps, space, bad, soon());
  ASSERT_TRUE(refused.is(Problem::kInvalid));
  EXPECT_THAT(refused.error().message, HasSubstr("UPPER"));
  EXPECT_TRUE(
      client->create(guard, kMaps, "no-such-namespace", {{"metadata", {{"name", "a"}}}}, soon())
          .is(Problem::kNotFound));
}

TEST_F(KubeClientTest, ListsInPages) {
  for (int i = 0; i < 5; ++i) created(fmt::format("map-{}", i));
  std::set<std::string> names;
  const ListSink sink{[&names] { names.clear(); },
                      [&names](Json&& item) { names.insert(item["metadata"]["name"]); }};
  ListOptions options;
  options.page_limit = 2;
  const auto version = client->list(kMaps, {space, "test=yes", ""}, options, sink, soon());
  ASSERT_TRUE(version.ok()) << version.error().sentence();
  EXPECT_EQ(names.size(), 5U);
  EXPECT_FALSE(version->empty());
  EXPECT_EQ(client->counter().counts().at({"list", "configmaps", "200"}), 3U);
}

TEST_F(KubeClientTest, WatchesToAnOrderlyEnd) {
  const Json map = created("a");
  created("b");
  WatchOptions options;
  options.resource_version = map["metadata"]["resourceVersion"];
  options.server_timeout = seconds(2);
  auto stream = client->watch(kMaps, {space, "", ""}, options, soon());
  ASSERT_TRUE(stream.ok()) << stream.error().sentence();
  std::vector<std::string> names;
  while (true) {
    auto next = (*stream)->next(soon());
    if (auto* event = std::get_if<WatchEvent>(&next)) {
      if (event->type == EventType::kAdded) names.push_back(event->object["metadata"]["name"]);
      continue;
    }
    ASSERT_TRUE(std::holds_alternative<WatchStream::End>(next))
        << std::get<ApiError>(next).sentence();
    EXPECT_EQ(std::get<WatchStream::End>(next), WatchStream::End::kOrderly);
    break;
  }
  EXPECT_EQ(names, std::vector<std::string>{"b"});
}

// Names in an informer's cache, with a way to wait for them.
struct Watched {
  Watched(Client& client, const std::string& space)
      : informer(
            client, options(space),
            [](const Json& object) { return object["data"].value("value", std::string()); },
            {[this](const auto&) { changed.notify_all(); },
             [this](const auto&, const auto&) { changed.notify_all(); },
             [this](const auto&, bool) { changed.notify_all(); }},
            make_silent_logger()) {
    informer.start();
  }
  static ReflectorOptions options(const std::string& space) {
    ReflectorOptions options;
    options.type = kMaps;
    options.selection = {space, "test=yes", ""};
    return options;
  }
  bool await(const std::set<std::string>& names) {
    std::unique_lock lock(mutex);
    const MonotonicTime until = monotonic_now() + seconds(30);
    while (true) {
      std::set<std::string> now;
      for (const auto& item : informer.all()) now.insert(item->name);
      if (now == names) return true;
      if (monotonic_now() >= until) return false;
      // A change between the look and the wait is caught by the next turn.
      changed.wait_for(lock, std::chrono::milliseconds(100));
    }
  }
  std::mutex mutex;
  std::condition_variable changed;
  Informer<std::string> informer;
};

TEST_F(KubeClientTest, InformsAcrossARestartOfTheApiServer) {
  created("a");
  created("b");
  Watched watched(*client, space);
  ASSERT_TRUE(watched.informer.wait_synced(soon()));
  ASSERT_TRUE(watched.await({"a", "b"}));
  created("c");
  ASSERT_TRUE(watched.await({"a", "b", "c"}));

  control_plane().kill_api_server();
  control_plane().start_api_server();
  // The kept connections are dead by now; a write of a fixed name finds its way all the same.
  created("d");
  const auto removed = client->remove(guard, kMaps, space, "a", {}, soon());
  EXPECT_TRUE(removed.ok() || removed.is(Problem::kTransport));
  if (!removed.ok()) {
    ASSERT_TRUE(client->remove(guard, kMaps, space, "a", {}, soon()).ok());
  }
  EXPECT_TRUE(watched.await({"b", "c", "d"}));
  EXPECT_GT(watched.informer.figures().failures, 0U);
}

TEST_F(KubeClientTest, PassesTheLeaseBetweenTwoElectors) {
  struct Term {
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
  } first_term, second_term;
  const auto options = [this](const std::string& identity) {
    ElectionOptions made;
    made.namespace_name = space;
    made.lease_name = "leader";
    made.elector.identity = identity;
    made.elector.retry_period = std::chrono::milliseconds(200);
    return made;
  };
  const auto holder = [this] {
    return decode_lease(*client->get(resource::leases(), space, "leader", soon()));
  };
  LeaderElection first(*client, options("first"), first_term.callbacks(), make_silent_logger());
  first.start();
  ASSERT_TRUE(first_term.await());
  LeaderElection second(*client, options("second"), second_term.callbacks(), make_silent_logger());
  second.start();
  EXPECT_EQ(holder().holder, "first");
  const auto old_guard = first_term.guard;
  first.stop();
  EXPECT_TRUE(
      client->create(*old_guard, kMaps, space, config_map("late"), soon()).is(Problem::kFenced));
  ASSERT_TRUE(second_term.await());
  EXPECT_EQ(holder().holder, "second");
  EXPECT_GE(holder().transitions, 1);
  const auto fresh = client->create(*second_term.guard, kMaps, space, config_map("fresh"), soon());
  EXPECT_TRUE(fresh.ok()) << fresh.error().sentence();
  second.stop();
  EXPECT_EQ(holder().holder, "");
}

}  // namespace
}  // namespace tilewright::kube
