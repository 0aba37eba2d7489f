// Tests of watch streams with arbitrary chunks and every way in which a stream can end.
#include "controller/client/watch.h"

#include <fmt/format.h>
#include <gmock/gmock.h>

#include <future>

#include "tests/support/manual_clock.h"
#include "tests/unit/controller/client/client_fixtures.h"

namespace tilewright::kube {
namespace {

using std::chrono::seconds;
using tilewright::testing::ManualClock;

// The events of a watch by name, then how it ended.
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

TEST(Watch, RequestsBookmarksFromAVersion) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.end_chunks();
  });
  EXPECT_EQ(watch_all(server).end, WatchStream::End::kServerClosed);
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
    EXPECT_EQ(seen.end, WatchStream::End::kServerClosed) << size;
  }
}

TEST(Watch, ReturnsAnEventAsSoonAsItArrives) {
  std::promise<void> received;
  auto event_received = received.get_future().share();
  ScriptedServer server([event_received](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("ADDED", object_text("a", "2")));
    EXPECT_EQ(event_received.wait_for(seconds(20)), std::future_status::ready);
    connection.end_chunks();
  });
  const auto client = client_for(server);
  auto stream = client->watch(resource::pods(), {}, {}, soon());
  ASSERT_TRUE(stream.ok());
  EXPECT_TRUE(std::holds_alternative<WatchEvent>((*stream)->next(soon())));
  received.set_value();
  EXPECT_TRUE(std::holds_alternative<WatchStream::End>((*stream)->next(soon())));
}

TEST(Watch, ReportsAMissingLastChunkAsTransportError) {
  for (const bool abrupt : {false, true}) {
    ScriptedServer server([abrupt](auto& connection, const auto&) {
      connection.begin_chunks();
      connection.chunk(two_events());
      abrupt ? connection.reset() : connection.hang_up();
    });
    const Seen seen = watch_all(server);
    EXPECT_FALSE(seen.end);
    ASSERT_TRUE(seen.error);
    EXPECT_EQ(seen.error->kind, ErrorKind::kTransport);
    EXPECT_EQ(seen.error->message.ends_with("(the connection was closed)"), !abrupt)
        << seen.error->message;
  }
}

TEST(Watch, ReportsATruncatedChunkAsTransportError) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("ADDED", object_text("a", "2")));
    connection.send("40\r\n{\"type\":");
    connection.hang_up();
  });
  const Seen seen = watch_all(server);
  EXPECT_EQ(seen.events, std::vector<std::string>{"a2"});
  ASSERT_TRUE(seen.error);
  EXPECT_EQ(seen.error->kind, ErrorKind::kTransport);
}

TEST(Watch, RejectsAStreamThatEndsWithinAnEvent) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk("{\"type\":\"ADDED\"");
    connection.end_chunks();
  });
  EXPECT_EQ(watch_all(server).error->kind, ErrorKind::kProtocol);
}

TEST(Watch, ReportsAnErrorEvent) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("ERROR", status_text(410, "Expired")));
    connection.end_chunks();
  });
  const Seen seen = watch_all(server);
  EXPECT_EQ(seen.error->kind, ErrorKind::kGone);
  EXPECT_EQ(seen.counted, "watch pods 200 1") << "counted with the response headers";
}

TEST(Watch, ReportsAnErrorStatusBeforeTheStream) {
  ScriptedServer server(
      [](auto& connection, const auto&) { connection.answer(410, status_text(410, "Expired")); });
  const Seen seen = watch_all(server);
  EXPECT_EQ(seen.error->kind, ErrorKind::kGone);
  EXPECT_EQ(seen.counted, "watch pods 410 1");
}

TEST(Watch, ClosesAnIdleConnection) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk(event_text("BOOKMARK", object_text("", "9")));
    connection.await_close();
  });
  ManualClock clock;
  SenderOptions sender;
  sender.clock = &clock;
  const auto client = client_for(server, sender);
  WatchOptions options;
  options.idle_timeout = seconds(10);
  auto stream = client->watch(resource::pods(), {}, options, soon());
  ASSERT_TRUE(stream.ok());
  const auto event = (*stream)->next(soon());
  ASSERT_TRUE(std::holds_alternative<WatchEvent>(event));
  EXPECT_EQ(std::get<WatchEvent>(event).resource_version, "9");
  auto end = std::async(std::launch::async, [&stream] { return (*stream)->next(soon()); });
  clock.advance(seconds(10));
  EXPECT_EQ(std::get<WatchStream::End>(end.get()), WatchStream::End::kIdle);
}

TEST(Watch, RejectsAnEventThatIsTooLarge) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk("{\"a\":");
    for (int i = 0; i < 100; ++i) connection.chunk(std::string(1000, ' '));
    connection.await_close();
  });
  WatchOptions options;
  options.max_event_bytes = 20000;
  EXPECT_EQ(watch_all(server, options).error->kind, ErrorKind::kTooLarge);
}

// Sends far more than the buffers hold: the connection is read only as fast as the events.
TEST(Watch, AppliesBackpressureToTheServer) {
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
  EXPECT_EQ(seen.end, WatchStream::End::kServerClosed);
}

TEST(Watch, ClosesTheConnectionAfterCancellation) {
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
  EXPECT_EQ(std::get<ApiError>(next).kind, ErrorKind::kCancelled);
  stream->reset();
  EXPECT_EQ(closed.get_future().wait_for(seconds(20)), std::future_status::ready);
}

}  // namespace
}  // namespace tilewright::kube
