// Tests of Informer and Reflector with interrupted watches, expired versions and repeated events.
#include "controller/client/informer.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <future>

#include "tests/support/silent_logger.h"
#include "tests/unit/controller/client/paging_script.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tilewright::testing::make_silent_logger;

bool is_watch(const ScriptedRequest& request) {
  return request.target.find("watch=1") != std::string::npos;
}

// The handler calls, as "+a2", "~a2>3", "-a3" and "-a3?" (final state unknown).
class HandlerLog {
 public:
  InformerHandlers<std::string> handlers() {
    using Item = InformerHandlers<std::string>::Item;
    return {[this](const Item& item) { record("+" + item->name + item->resource_version); },
            [this](const Item& before, const Item& now) {
              record("~" + now->name + before->resource_version + ">" + now->resource_version);
            },
            [this](const Item& last, bool unknown) {
              record("-" + last->name + last->resource_version + (unknown ? "?" : ""));
            }};
  }
  std::vector<std::string> await(std::size_t count) {
    std::unique_lock lock(mutex_);
    recorded_.wait_for(lock, seconds(20), [&] { return lines_.size() >= count; });
    return lines_;
  }

 private:
  void record(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    recorded_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable recorded_;
  std::vector<std::string> lines_;
};

ReflectorOptions with_short_delays() {
  ReflectorOptions options;
  options.initial_delay = milliseconds(1);
  options.max_delay = milliseconds(2);
  return options;
}

// After a failure, no other request is sent during the test.
ReflectorOptions without_retries() {
  ReflectorOptions options;
  options.initial_delay = options.max_delay = std::chrono::hours(1);
  options.least_watch = Duration::zero();
  return options;
}

// An informer of a scripted server. The server is destroyed last.
struct Fixture {
  explicit Fixture(ScriptedServer::Script script, ReflectorOptions options = with_short_delays())
      : server(std::move(script)), client(client_for(server)) {
    options.type = resource::pods();
    options.selection.label_selector = "app=tilewright";
    options.jitter = [] { return 0.0; };
    informer = std::make_unique<Informer<std::string>>(
        *client, options,
        [](const Json& object) { return object["metadata"].value("kept", std::string("kept")); },
        handler_log.handlers(), make_silent_logger());
    informer->start();
  }
  // The first pages of lists that the server has received.
  std::ptrdiff_t lists() const {
    return std::ranges::count_if(server.requests(), [](const ScriptedRequest& request) {
      return !is_watch(request) && request.target.find("continue=") == std::string::npos;
    });
  }
  ScriptedServer server;
  std::unique_ptr<Client> client;
  HandlerLog handler_log;
  std::unique_ptr<Informer<std::string>> informer;
};

TEST(Informer, ListsThenWatches) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) {
      return connection.answer(
          200, list_text("10", object_text("a", "1") + "," + object_text("b", "2")));
    }
    connection.begin_chunks();
    connection.chunk(event_text("ADDED", object_text("c", "11")));
    connection.chunk(event_text("MODIFIED", object_text("a", "12")));
    connection.chunk(event_text("BOOKMARK", object_text("", "20")));
    connection.chunk(event_text("DELETED", object_text("b", "21")));
    connection.await_close();
  });
  EXPECT_TRUE(fixture.informer->wait_synced(soon()));
  EXPECT_THAT(fixture.handler_log.await(5), ElementsAre("+a1", "+b2", "+c11", "~a1>12", "-b21"));
  EXPECT_EQ(fixture.informer->size(), 2U);
  EXPECT_EQ(fixture.informer->get("ns", "a")->resource_version, "12");
  EXPECT_EQ(fixture.informer->get("ns", "a")->value, "kept");
  EXPECT_EQ(fixture.informer->get("ns", "b"), nullptr);
  EXPECT_EQ(fixture.informer->all().size(), 2U);
  const auto requests = fixture.server.requests();
  EXPECT_THAT(requests[0].target, HasSubstr("labelSelector=app%3Dtilewright"));
  EXPECT_THAT(requests[1].target, HasSubstr("labelSelector=app%3Dtilewright"));
  EXPECT_THAT(requests[1].target, HasSubstr("resourceVersion=10&"));
}

TEST(Informer, ResumesAnInterruptedWatchFromItsLastVersion) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) return connection.answer(200, list_text("10", ""));
    connection.begin_chunks();
    if (request.target.find("resourceVersion=10&") != std::string::npos) {
      connection.chunk(event_text("ADDED", object_text("a", "11")));
      connection.chunk(event_text("BOOKMARK", object_text("", "15")));
      return connection.hang_up();  // a reset could discard the bookmark
    }
    EXPECT_THAT(request.target, HasSubstr("resourceVersion=15&"));
    connection.chunk(event_text("MODIFIED", object_text("a", "16")));
    connection.await_close();
  });
  EXPECT_THAT(fixture.handler_log.await(2), ElementsAre("+a11", "~a11>16"));
  EXPECT_EQ(fixture.lists(), 1);
}

// Each outage of the API server breaks the watches. Without a reset the delay would double with
// each.
TEST(Informer, WatchesThatLastedResetTheDelayAfterAFailure) {
  constexpr int kOutages = 20;
  std::atomic<int> watches = 0;
  std::promise<void> last;
  ReflectorOptions options;
  options.initial_delay = milliseconds(1);
  options.max_delay = std::chrono::hours(1);
  options.least_watch = Duration::zero();
  Fixture fixture(
      [&](auto& connection, const auto& request) {
        if (!is_watch(request)) return connection.answer(200, list_text("10", ""));
        connection.begin_chunks();
        if (++watches <= kOutages) return connection.hang_up();
        last.set_value();
        connection.await_close();
      },
      options);
  EXPECT_EQ(last.get_future().wait_for(seconds(60)), std::future_status::ready);
}

TEST(Informer, RelistsAfterExpiredVersionAndReportsMissedChanges) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) {
      // Meanwhile b was deleted, c was created, d was replaced, and a is unchanged.
      return connection.answer(
          200,
          request.index == 0
              ? list_text("10", object_text("a", "1") + "," + object_text("b", "2") + "," +
                                    object_text("d", "3", "u1") + "," + object_text("e", "4"))
              : list_text("50", object_text("a", "1") + "," + object_text("c", "40") + "," +
                                    object_text("d", "41", "u2") + "," + object_text("e", "42")));
    }
    if (request.target.find("resourceVersion=10&") != std::string::npos) {
      connection.begin_chunks();
      connection.chunk(event_text("ERROR", status_text(410, "Expired")));
      return connection.end_chunks();
    }
    connection.begin_chunks();
    connection.await_close();
  });
  EXPECT_THAT(fixture.handler_log.await(9),
              ElementsAre("+a1", "+b2", "+d3", "+e4", "-b2?", "-d3?", "+c40", "+d41", "~e4>42"));
  EXPECT_EQ(fixture.lists(), 2);
}

TEST(Informer, RelistsWhenTheWatchFailsWith410) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) {
      const std::string version = std::to_string(10 * (request.index + 1));
      return connection.answer(200, list_text(version, object_text("a", version)));
    }
    if (request.index == 1) return connection.answer(410, status_text(410, "Gone"));
    connection.begin_chunks();
    connection.await_close();
  });
  EXPECT_THAT(fixture.handler_log.await(2), ElementsAre("+a10", "~a10>30"));
}

TEST(Informer, ReportsAReplacementAsDeletedAndAdded) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request))
      return connection.answer(200, list_text("10", object_text("a", "1", "u1")));
    connection.begin_chunks();
    connection.chunk(event_text("MODIFIED", object_text("a", "11", "u2")));
    connection.await_close();
  });
  EXPECT_THAT(fixture.handler_log.await(3), ElementsAre("+a1", "-a1?", "+a11"));
}

TEST(Informer, RetriesUntilTheListSucceeds) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (request.index < 20) return connection.answer(403, status_text(403, "Forbidden"));
    if (!is_watch(request)) return connection.answer(200, list_text("10", object_text("a", "1")));
    connection.begin_chunks();
    connection.await_close();
  });
  EXPECT_TRUE(fixture.informer->wait_synced(soon()));
}

TEST(Informer, ReopensAnIdleWatchAtOnce) {
  ReflectorOptions options = without_retries();
  options.idle_timeout = milliseconds(50);
  Fixture fixture(
      [](auto& connection, const auto& request) {
        if (!is_watch(request)) return connection.answer(200, list_text("10", ""));
        connection.begin_chunks();
        if (request.index > 1) connection.chunk(event_text("ADDED", object_text("a", "11")));
        connection.await_close();
      },
      options);
  EXPECT_THAT(fixture.handler_log.await(1)[0], "+a11");
  EXPECT_EQ(fixture.lists(), 1);
}

// An object with a spec of `bytes` bytes.
std::string object_of_size(const std::string& name, std::size_t bytes) {
  Json object = Json::parse(object_text(name, "1"));
  object["spec"]["args"] = {std::string(bytes, 'x')};
  return object.dump();
}

// 47 jobs of 1.4 MB are 66 MB: more than one response may have, in any number of pages of 45 and
// more objects.
TEST(Informer, ListsLargeObjectsInPagesThatFit) {
  std::vector<std::string> objects;
  objects.reserve(47 + 600);
  for (int i = 0; i < 47; ++i) {
    objects.push_back(object_of_size(fmt::format("large-{:02}", i), 1'400'000));
  }
  for (int i = 0; i < 600; ++i) objects.push_back(object_text(fmt::format("small-{:03}", i), "1"));
  Fixture fixture(paging_script(std::move(objects)), without_retries());
  ASSERT_TRUE(fixture.informer->wait_synced(soon()));
  EXPECT_EQ(fixture.informer->size(), 647U);

  std::vector<int> limits;
  for (const ScriptedRequest& request : fixture.server.requests()) {
    if (!is_watch(request)) limits.push_back(number_in_query(request.target, "limit"));
  }
  EXPECT_EQ(limits.front(), 250);
  EXPECT_LT(*std::ranges::min_element(limits), 12) << "of 1.4 MB each in 16 MiB";
  EXPECT_EQ(limits.back(), 250) << "grown back";
}

// etcd stores 1.5 MiB; JSON writes < as \u003c.
TEST(Informer, ReceivesAnEventWithTheLargestObject) {
  std::string escaped;
  for (int i = 0; i < 1'500'000; ++i) escaped += "\\u003c";
  std::string object = object_text("a", "11");
  object.insert(object.size() - 1, R"(,"status":{"message":")" + escaped + "\"}");
  Fixture fixture([&](auto& connection, const auto& request) {
    if (!is_watch(request)) return connection.answer(200, list_text("10", ""));
    connection.begin_chunks();
    connection.chunk(event_text("ADDED", object));
    connection.await_close();
  });
  EXPECT_THAT(fixture.handler_log.await(1), ElementsAre("+a11"));
  EXPECT_EQ(fixture.lists(), 1);
}

TEST(Informer, ListsAgainAfterAnEventThatIsTooLarge) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) {
      return connection.answer(
          200, request.index == 0 ? list_text("10", "") : list_text("20", object_text("a", "11")));
    }
    connection.begin_chunks();
    if (request.index == 1) {
      connection.chunk(event_text("ADDED", object_of_size("a", kMaxPageBytes)));
    } else {
      connection.chunk(event_text("ADDED", object_text("b", "21")));
    }
    connection.await_close();
  });
  EXPECT_THAT(fixture.handler_log.await(2), ElementsAre("+a11", "+b21"));
}

// The projection of the fixture throws if `kept` is not a string.
TEST(Informer, CachesAnObjectWhoseProjectionThrowsWithAnEmptyValue) {
  const std::string odd =
      R"({"metadata":{"namespace":"ns","name":"odd","uid":"u","resourceVersion":"1","kept":7}})";
  Fixture fixture([&](auto& connection, const auto& request) {
    if (!is_watch(request)) {
      return connection.answer(200, list_text("10", odd + "," + object_text("a", "2")));
    }
    connection.begin_chunks();
    connection.chunk(event_text("MODIFIED", odd));
    connection.chunk(event_text("DELETED", odd));
    connection.await_close();
  });
  EXPECT_TRUE(fixture.informer->wait_synced(soon()));
  EXPECT_THAT(fixture.handler_log.await(4), ElementsAre("+a2", "+odd1", "~odd1>1", "-odd1"));
  EXPECT_EQ(fixture.informer->get("ns", "a")->value, "kept");
}

TEST(Informer, StopsDuringListAndWatch) {
  for (int i = 0; i < 3; ++i) {
    Fixture fixture([i](auto& connection, const auto& request) {
      if (is_watch(request)) connection.begin_chunks();
      if (i > 0 && !is_watch(request)) return connection.answer(200, list_text("10", ""));
      connection.await_close();
    });
    ASSERT_TRUE(fixture.server.await_requests(i == 0 ? 1 : 2));
    fixture.informer->stop();
  }
}

}  // namespace
}  // namespace tilewright::kube
