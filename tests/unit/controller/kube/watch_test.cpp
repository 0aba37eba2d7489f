// Watch streams: any pieces, and every way to end.
#include "controller/kube/watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <future>

#include "tests/unit/controller/kube/client_fixtures.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// What came of a watch until its end: names, then how it ended.
struct Seen {
  std::vector<std::string> events;
  std::optional<WatchStream::End> end;
  std::optional<ApiError> error;
  std::string counted;
};

Seen watch_all(ScriptedServer& server, WatchOptions options = {}) {
  const auto client = client_for(server);
  options.resource_version = "1";
  Seen seen;
  auto stream = client->watch(resource::pods(), {}, options, soon());
  for (const auto& [request, count] : client->counter().counts()) {
    seen.counted += fmt::format("{} {} {} {}", request.verb, request.resource, request.code, count);
  }
  if (!stream) {
    seen.error = stream.error();
    return seen;
  }
  while (true) {
    auto next = (*stream)->next(soon());
    if (auto* event = std::get_if<WatchEvent>(&next)) {
      seen.events.push_back(event->object["metadata"].value("name", "") + event->resource_version);
      continue;
    }
    if (auto* end = std::get_if<WatchStream::End>(&next)) seen.end = *end;
    if (auto* error = std::get_if<ApiError>(&next)) seen.error = *error;
    return seen;
  }
}

std::string two_events() {
  return event_text("ADDED", object_text("a", "2")) + event_text("DELETED", object_text("b", "3"));
}

TEST(Watch, AsksForBookmarksFromAVersionOn) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.end_chunks();
  });
  EXPECT_EQ(watch_all(server).end, WatchStream::End::kOrderly);
  EXPECT_EQ(server.requests()[0].target,
            "/api/v1/pods?watch=1&allowWatchBookmarks=true&resourceVersion=1&timeoutSeconds=300");
}

TEST(Watch, ReadsEventsInAnyChunks) {
  for (const std::size_t size : {1UL, 2UL, 7UL, 60UL, 1000UL}) {
    ScriptedServer server([size](auto& connection, const auto&) {
      connection.begin_chunks();
      const std::string text = two_events();
      for (std::size_t at = 0; at < text.size(); at += size) {
        connection.chunk(text.substr(at, size));
      }
      connection.end_chunks();
    });
    const Seen seen = watch_all(server);
    EXPECT_EQ(seen.events, (std::vector<std::string>{"a2", "b3"})) << size;
    EXPECT_EQ(seen.end, WatchStream::End::kOrderly) << size;
  }
}

TEST(Watch, HandsAnEventOutAsSoonAsItHasCome) {
  std::promise<void> got;
  auto has_got = got.get_future().share();
  ScriptedServer server([has_got](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("ADDED", object_text("a", "2")));
    EXPECT_EQ(has_got.wait_for(seconds(20)), std::future_status::ready);
    connection.end_chunks();
  });
  const auto client = client_for(server);
  auto stream = client->watch(resource::pods(), {}, {}, soon());
  ASSERT_TRUE(stream.ok());
  EXPECT_TRUE(std::holds_alternative<WatchEvent>((*stream)->next(soon())));
  got.set_value();
  EXPECT_TRUE(std::holds_alternative<WatchStream::End>((*stream)->next(soon())));
}

TEST(Watch, TakesAStreamWithoutItsLastChunkForBroken) {
  for (const bool abrupt : {false, true}) {
    ScriptedServer server([abrupt](auto& connection, const auto&) {
      connection.begin_chunks();
      connection.chunk(two_events());
      abrupt ? connection.reset() : connection.hang_up();
    });
    const Seen seen = watch_all(server);
    EXPECT_FALSE(seen.end);
    ASSERT_TRUE(seen.error);
    EXPECT_EQ(seen.error->problem, Problem::kTransport);
    EXPECT_EQ(seen.error->message.ends_with("(the connection was closed)"), !abrupt)
        << seen.error->message;
  }
}

TEST(Watch, TakesAHalfChunkForBroken) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("ADDED", object_text("a", "2")));
    connection.send("40\r\n{\"type\":");
    connection.hang_up();
  });
  const Seen seen = watch_all(server);
  EXPECT_EQ(seen.events, std::vector<std::string>{"a2"});
  ASSERT_TRUE(seen.error);
  EXPECT_EQ(seen.error->problem, Problem::kTransport);
}

TEST(Watch, RefusesAnOrderlyEndWithinAnEvent) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk("{\"type\":\"ADDED\"");
    connection.end_chunks();
  });
  EXPECT_EQ(watch_all(server).error->problem, Problem::kProtocol);
}

TEST(Watch, ReportsAnErrorEvent) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("ERROR", status_text(410, "Expired")));
    connection.end_chunks();
  });
  const Seen seen = watch_all(server);
  EXPECT_EQ(seen.error->problem, Problem::kGone);
  EXPECT_EQ(seen.counted, "watch pods 200 1") << "as the stream began";
}

TEST(Watch, ReportsARefusalBeforeTheStream) {
  ScriptedServer server(
      [](auto& connection, const auto&) { connection.answer(410, status_text(410, "Expired")); });
  const Seen seen = watch_all(server);
  EXPECT_EQ(seen.error->problem, Problem::kGone);
  EXPECT_EQ(seen.counted, "watch pods 410 1");
}

TEST(Watch, GivesAConnectionUpOnWhichNothingComes) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("BOOKMARK", object_text("", "9")));
    connection.await_close();
  });
  WatchOptions options;
  options.silence = milliseconds(100);
  const Seen seen = watch_all(server, options);
  EXPECT_EQ(seen.events, std::vector<std::string>{"9"});
  EXPECT_EQ(seen.end, WatchStream::End::kSilent);
}

TEST(Watch, RefusesAnEventThatIsTooLarge) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk("{\"a\":");
    for (int i = 0; i < 100; ++i) connection.chunk(std::string(1000, ' '));
    connection.await_close();
  });
  WatchOptions options;
  options.max_event_bytes = 20000;
  EXPECT_EQ(watch_all(server, options).error->problem, Problem::kProtocol);
}

// Far more than is buffered on the way: the connection is read only as fast as the events are.
TEST(Watch, LetsASlowReaderSlowTheServer) {
  constexpr int kEvents = 2000;
  const std::string filling(1000, 'x');
  ScriptedServer server([&](auto& connection, const auto&) {
    connection.begin_chunks();
    for (int i = 0; i < kEvents; ++i) {
      connection.chunk(event_text("ADDED", object_text(filling, std::to_string(i))));
    }
    connection.end_chunks();
  });
  const Seen seen = watch_all(server);
  EXPECT_EQ(seen.events.size(), static_cast<std::size_t>(kEvents));
  EXPECT_EQ(seen.end, WatchStream::End::kOrderly);
}

TEST(Watch, IsCancelledAndItsConnectionClosed) {
  std::promise<void> closed;
  ScriptedServer server([&closed](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.await_close();
    closed.set_value();
  });
  const auto client = client_for(server);
  net::WakeUp cancel;
  auto stream = client->watch(resource::pods(), {}, {}, soon());
  ASSERT_TRUE(stream.ok());
  cancel.signal();
  const auto next = (*stream)->next(net::within(seconds(20), &cancel));
  ASSERT_TRUE(std::holds_alternative<ApiError>(next));
  EXPECT_EQ(std::get<ApiError>(next).problem, Problem::kCancelled);
  stream->reset();
  EXPECT_EQ(closed.get_future().wait_for(seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace tilewright::kube
