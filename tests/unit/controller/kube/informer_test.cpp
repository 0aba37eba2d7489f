// The cache against a server that lists, watches, cuts, forgets and repeats.
#include "controller/kube/informer.h"

#include <gmock/gmock.h>

#include "tests/unit/controller/kube/client_fixtures.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

bool is_watch(const ScriptedRequest& request) {
  return request.target.find("watch=1") != std::string::npos;
}

// What handlers were told, as "+a2", "~a2>3", "-a3" and "-a3?" (final state unknown).
class Story {
 public:
  InformerHandlers<std::string> handlers() {
    using Item = InformerHandlers<std::string>::Item;
    return {[this](const Item& item) { tell("+" + item->name + item->resource_version); },
            [this](const Item& before, const Item& now) {
              tell("~" + now->name + before->resource_version + ">" + now->resource_version);
            },
            [this](const Item& last, bool unknown) {
              tell("-" + last->name + last->resource_version + (unknown ? "?" : ""));
            }};
  }
  std::vector<std::string> await(std::size_t count) {
    std::unique_lock lock(mutex_);
    told_.wait_for(lock, seconds(20), [&] { return lines_.size() >= count; });
    return lines_;
  }

 private:
  void tell(std::string line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(std::move(line));
    told_.notify_all();
  }
  std::mutex mutex_;
  std::condition_variable told_;
  std::vector<std::string> lines_;
};

// An informer of a script; the server goes last.
struct Fixture {
  explicit Fixture(ScriptedServer::Script script, Duration silence = seconds(90))
      : server(std::move(script)), client(client_for(server)) {
    ReflectorOptions options;
    options.type = resource::pods();
    options.selection.label_selector = "app=tilewright";
    options.first_delay = milliseconds(1);
    options.most_delay = milliseconds(2);
    options.silence = silence;
    options.jitter = [] { return 0.0; };
    informer = std::make_unique<Informer<std::string>>(
        *client, options,
        [](const Json& object) { return object["metadata"].value("kept", std::string("kept")); },
        story.handlers(), make_silent_logger());
    informer->start();
  }
  ScriptedServer server;
  std::unique_ptr<Client> client;
  Story story;
  std::unique_ptr<Informer<std::string>> informer;
};

TEST(Informer, ListsThenFollows) {
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
  EXPECT_THAT(fixture.story.await(5), ElementsAre("+a1", "+b2", "+c11", "~a1>12", "-b21"));
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

TEST(Informer, GoesOnWhereACutWatchWas) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) return connection.answer(200, list_text("10", ""));
    connection.begin_chunks();
    if (request.target.find("resourceVersion=10&") != std::string::npos) {
      connection.chunk(event_text("ADDED", object_text("a", "11")));
      connection.chunk(event_text("BOOKMARK", object_text("", "15")));
      return connection.hang_up();  // a reset could take the bookmark along
    }
    EXPECT_THAT(request.target, HasSubstr("resourceVersion=15&"));
    connection.chunk(event_text("MODIFIED", object_text("a", "16")));
    connection.await_close();
  });
  EXPECT_THAT(fixture.story.await(2), ElementsAre("+a11", "~a11>16"));
  EXPECT_EQ(fixture.informer->figures().lists, 1U);
}

TEST(Informer, ListsAgainWhenItsVersionIsTooOldAndTellsWhatItMissed) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) {
      // Meanwhile b went, c came, d was replaced by another of its name, and a is as it was.
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
  EXPECT_THAT(fixture.story.await(9),
              ElementsAre("+a1", "+b2", "+d3", "+e4", "-b2?", "-d3?", "+c40", "+d41", "~e4>42"));
  EXPECT_EQ(fixture.informer->figures().lists, 2U);
}

TEST(Informer, ListsAgainWhenTheWatchIsRefusedWith410) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request)) {
      const std::string version = std::to_string(10 * (request.index + 1));
      return connection.answer(200, list_text(version, object_text("a", version)));
    }
    if (request.index == 1) return connection.answer(410, status_text(410, "Gone"));
    connection.begin_chunks();
    connection.await_close();
  });
  EXPECT_THAT(fixture.story.await(2), ElementsAre("+a10", "~a10>30"));
}

TEST(Informer, TellsOfAReplacementOfTheSameName) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (!is_watch(request))
      return connection.answer(200, list_text("10", object_text("a", "1", "u1")));
    connection.begin_chunks();
    connection.chunk(event_text("MODIFIED", object_text("a", "11", "u2")));
    connection.await_close();
  });
  EXPECT_THAT(fixture.story.await(3), ElementsAre("+a1", "-a1?", "+a11"));
}

TEST(Informer, KeepsTryingUntilTheServerAnswers) {
  Fixture fixture([](auto& connection, const auto& request) {
    if (request.index < 20) return connection.answer(403, status_text(403, "Forbidden"));
    if (!is_watch(request)) return connection.answer(200, list_text("10", object_text("a", "1")));
    connection.begin_chunks();
    connection.await_close();
  });
  EXPECT_TRUE(fixture.informer->wait_synced(soon()));
  EXPECT_GE(fixture.informer->figures().failures, 20U);
}

TEST(Informer, OpensASilentWatchAnew) {
  Fixture fixture(
      [](auto& connection, const auto& request) {
        if (!is_watch(request)) return connection.answer(200, list_text("10", ""));
        connection.begin_chunks();
        if (request.index > 1) connection.chunk(event_text("ADDED", object_text("a", "11")));
        connection.await_close();
      },
      milliseconds(50));
  EXPECT_THAT(fixture.story.await(1)[0], "+a11");
  EXPECT_EQ(fixture.informer->figures().lists, 1U);
  EXPECT_EQ(fixture.informer->figures().failures, 0U);
}

TEST(Informer, StopsInTheMiddleOfAnything) {
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
