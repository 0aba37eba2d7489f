// Tests of Client with correct, invalid, late, chunked and missing responses.
#include "controller/client/client.h"

#include <gmock/gmock.h>

#include <future>

#include "tests/support/local_ports.h"
#include "tests/support/manual_clock.h"
#include "tests/unit/controller/client/client_fixtures.h"

namespace tilewright::kube {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using tilewright::testing::ManualClock;
using Counted = RequestCounter::Key;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

const WriteGuard kGuard = WriteGuard::unfenced();
const ResourceType kPods = resource::pods();

Json pod(const std::string& name) { return {{"metadata", {{"name", name}, {"namespace", "ns"}}}}; }

TEST(Client, GetsAnObject) {
  ScriptedServer server(
      [](auto& connection, const auto&) { connection.answer(200, object_text("a", "5")); });
  const auto client = client_for(server);
  const auto object = client->get(kPods, "ns", "a", soon());
  ASSERT_TRUE(object.ok()) << object.error().sentence();
  EXPECT_EQ((*object)["metadata"]["resourceVersion"], "5");
  const auto requests = server.requests();
  EXPECT_EQ(requests[0].method, "GET");
  EXPECT_EQ(requests[0].target, "/api/v1/namespaces/ns/pods/a");
  EXPECT_EQ(requests[0].headers.at("accept"), "application/json");
  EXPECT_EQ(client->counter().counts().at({"get", "pods", "200"}), 1U);
}

TEST(Client, ReadsAResponseInAnyChunks) {
  const std::string body = object_text("a", "5");
  ScriptedServer server([&](auto& connection, const auto& request) {
    connection.begin_chunks();
    const std::size_t size = static_cast<std::size_t>(request.index) + 1;
    for (std::size_t at = 0; at < body.size(); at += size) connection.chunk(body.substr(at, size));
    connection.end_chunks();
  });
  const auto client = client_for(server);
  for (int i = 0; i < 5; ++i) {
    const auto object = client->get(kPods, "ns", "a", soon());
    ASSERT_TRUE(object.ok()) << object.error().sentence();
    EXPECT_EQ(object->dump(), Json::parse(body).dump());
  }
}

TEST(Client, ReusesItsConnection) {
  ScriptedServer server([](auto& connection, const auto&) { connection.answer(200, "{}"); });
  const auto client = client_for(server);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(client->get(kPods, "ns", "a", soon()).ok());
  for (const auto& request : server.requests()) EXPECT_EQ(request.connection, 0);
}

TEST(Client, MapsStatusResponsesToErrors) {
  ScriptedServer server(
      [](auto& connection, const auto&) { connection.answer(404, status_text(404, "NotFound")); });
  const auto client = client_for(server);
  const auto object = client->get(kPods, "ns", "a", soon());
  ASSERT_TRUE(object.is(ErrorKind::kNotFound));
  EXPECT_EQ(object.error().sentence(), "get pods ns/a: 404 NotFound: as scripted");
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(Client, RetriesReadsAfter500And429AndConnectionErrors) {
  ScriptedServer server([](auto& connection, const auto& request) {
    switch (request.index) {
      case 0:
        return connection.answer(500, status_text(500, "InternalError"));
      case 1:
        return connection.answer(429, status_text(429, "TooManyRequests"), "Retry-After: 0\r\n");
      case 2:
        connection.head(200, "Content-Length: 100\r\n");
        connection.send("{\"half\":");
        return connection.hang_up();
      case 3:
        return connection.reset();
      default:
        return connection.answer(200, "{}");
    }
  });
  const auto client = client_for(server);
  const auto object = client->get(kPods, "ns", "a", soon());
  EXPECT_TRUE(object.ok()) << object.error().sentence();
  // Each attempt counts. The incomplete response counts with its status code.
  EXPECT_THAT(
      client->counter().counts(),
      ElementsAre(Pair(Counted{"get", "pods", "200"}, 2), Pair(Counted{"get", "pods", "429"}, 1),
                  Pair(Counted{"get", "pods", "500"}, 1), Pair(Counted{"get", "pods", "none"}, 1)));
}

TEST(Client, CountsRequestsWithoutResponseButNotUnsentOnes) {
  ScriptedServer server([](auto& connection, const auto&) { connection.await_close(); });
  const auto client = client_for(server);
  ASSERT_TRUE(
      client->get(kPods, "ns", "a", net::within(milliseconds(50))).is(ErrorKind::kTimedOut));
  const WriteGuard fenced(MonotonicTime::min());
  ASSERT_TRUE(client->create(fenced, kPods, "ns", pod("a"), soon()).is(ErrorKind::kFenced));
  EXPECT_THAT(client->counter().counts(), ElementsAre(Pair(Counted{"get", "pods", "none"}, 1)));
}

TEST(Client, GivesUpWhenRetryAfterExceedsTheDeadline) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.answer(429, status_text(429, "TooManyRequests"), "Retry-After: 60\r\n");
  });
  const auto client = client_for(server);
  const auto object = client->get(kPods, "ns", "a", net::within(seconds(20)));
  ASSERT_TRUE(object.is(ErrorKind::kTooManyRequests));
  EXPECT_EQ(object.error().retry_after, seconds(60));
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(Client, TimesOutOnASilentServer) {
  ScriptedServer server([](auto& connection, const auto&) { connection.await_close(); });
  const auto client = client_for(server);
  const auto object = client->get(kPods, "ns", "a", net::within(milliseconds(50)));
  ASSERT_TRUE(object.is(ErrorKind::kTimedOut));
}

TEST(Client, RetriesAfterAnAttemptTimesOut) {
  ManualClock clock;
  ScriptedServer server([&clock](auto& connection, const auto& request) {
    if (request.index > 0) return connection.answer(200, "{}");
    clock.advance(seconds(15));
    connection.await_close();
  });
  SenderOptions options = no_retry_delay();
  options.attempt_timeout = seconds(15);
  options.clock = &clock;
  const auto client = client_for(server, options);
  EXPECT_TRUE(client->get(kPods, "ns", "a", soon()).ok());
}

TEST(Client, CanBeCancelledWhileItWaits) {
  ScriptedServer server([](auto& connection, const auto&) { connection.await_close(); });
  const auto client = client_for(server);
  net::WakeUp cancel;
  auto object = std::async(std::launch::async, [&] {
    return client->get(kPods, "ns", "a", net::within(seconds(20), &cancel));
  });
  ASSERT_TRUE(server.await_requests(1));
  cancel.signal();
  EXPECT_TRUE(object.get().is(ErrorKind::kCancelled));
}

TEST(Client, RejectsATruncatedResponse) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.begin_chunks();
    connection.chunk("{}");  // complete JSON, but not the complete response
    connection.hang_up();
  });
  SenderOptions options = no_retry_delay();
  options.retry.attempts = 2;
  const auto client = client_for(server, options);
  const auto object = client->get(kPods, "ns", "a", soon());
  ASSERT_TRUE(object.is(ErrorKind::kTransport));
  EXPECT_THAT(object.error().message, HasSubstr("incomplete"));
}

TEST(Client, RejectsAResponseWithoutContentLengthOrTransferEncoding) {
  ScriptedServer server([](auto& connection, const auto&) {
    connection.head(200, "");
    connection.send("{}");
    connection.hang_up();
  });
  SenderOptions options = no_retry_delay();
  options.retry.attempts = 1;
  EXPECT_TRUE(client_for(server, options)->get(kPods, "ns", "a", soon()).is(ErrorKind::kTransport));
}

TEST(Client, RejectsAResponseThatIsNotJson) {
  ScriptedServer server([](auto& connection, const auto&) { connection.answer(200, "hello"); });
  EXPECT_TRUE(client_for(server)->get(kPods, "ns", "a", soon()).is(ErrorKind::kProtocol));
}

TEST(Client, ReportsConnectionRefused) {
  const tilewright::testing::ReservedPort port;
  ClusterConfig config;
  config.server = fmt::format("http://127.0.0.1:{}", port.number());
  config.credentials = no_credentials();
  SenderOptions options = no_retry_delay();
  options.retry.attempts = 2;
  const auto client = Client::make(config, options).or_throw();
  const auto object = client->create(kGuard, kPods, "ns", pod("a"), soon());
  ASSERT_TRUE(object.is(ErrorKind::kTransport));
  EXPECT_FALSE(object.error().maybe_applied) << "no server received it";
}

TEST(Client, CreatesAnObject) {
  ScriptedServer server(
      [](auto& connection, const auto& request) { connection.answer(201, request.body); });
  const auto client = client_for(server);
  const auto object = client->create(kGuard, kPods, "ns", pod("a"), soon());
  ASSERT_TRUE(object.ok()) << object.error().sentence();
  EXPECT_EQ(*object, pod("a"));
  const auto request = server.requests()[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/api/v1/namespaces/ns/pods");
  EXPECT_EQ(request.headers.at("content-type"), "application/json");
  EXPECT_EQ(client->counter().counts().at({"create", "pods", "201"}), 1U);
}

// The server may have created the object before the connection broke.
TEST(Client, ReportsThatAnEarlierAttemptMayHaveCreatedTheObject) {
  ScriptedServer server([](auto& connection, const auto& request) {
    if (request.index == 0) return connection.reset();
    connection.answer(409, status_text(409, "AlreadyExists"));
  });
  const auto client = client_for(server);
  const auto object = client->create(kGuard, kPods, "ns", pod("a"), soon());
  ASSERT_TRUE(object.is(ErrorKind::kAlreadyExists));
  EXPECT_TRUE(object.error().maybe_applied);
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST(Client, DoesNotRetryCreateWithGenerateName) {
  ScriptedServer server([](auto& connection, const auto& request) {
    if (request.index == 0) return connection.answer(201, request.body);
    connection.reset();  // a reused connection, on which cpprestsdk would resend
  });
  const auto client = client_for(server);
  const Json object = {{"metadata", {{"generateName", "a-"}}}};
  ASSERT_TRUE(client->create(kGuard, kPods, "ns", object, soon()).ok());
  const auto second = client->create(kGuard, kPods, "ns", object, soon());
  ASSERT_TRUE(second.is(ErrorKind::kTransport));
  EXPECT_TRUE(second.error().maybe_applied);
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST(Client, SendsTheOptionsOfEachVerb) {
  ScriptedServer server([](auto& connection, const auto&) { connection.answer(200, "{}"); });
  const auto client = client_for(server);
  DeleteOptions remove;
  remove.uid = "u1";
  remove.resource_version = "7";
  remove.grace_seconds = 0;
  remove.propagation = "Background";
  PatchOptions apply;
  apply.field_manager = "tilewright";
  apply.force = true;
  PatchOptions status;
  status.subresource = "status";
  ASSERT_TRUE(client->update(kGuard, kPods, pod("a"), soon()).ok());
  ASSERT_TRUE(
      client->patch(kGuard, kPods, "ns", "a", PatchType::kMerge, pod("a"), status, soon()).ok());
  ASSERT_TRUE(
      client->patch(kGuard, kPods, "ns", "a", PatchType::kApply, pod("a"), apply, soon()).ok());
  ASSERT_TRUE(client->remove(kGuard, kPods, "ns", "a", remove, soon()).ok());
  const auto requests = server.requests();
  const std::string path = "/api/v1/namespaces/ns/pods/a";
  EXPECT_EQ(requests[0].method + requests[0].target, "PUT" + path);
  EXPECT_EQ(requests[1].method + requests[1].target, "PATCH" + path + "/status");
  EXPECT_EQ(requests[1].headers.at("content-type"), "application/merge-patch+json");
  EXPECT_EQ(requests[2].target, path + "?fieldManager=tilewright&force=true");
  EXPECT_EQ(requests[2].headers.at("content-type"), "application/apply-patch+yaml");
  EXPECT_EQ(requests[3].method + requests[3].target, "DELETE" + path);
  EXPECT_EQ(Json::parse(requests[3].body),
            Json::parse(R"({"apiVersion":"v1","kind":"DeleteOptions","gracePeriodSeconds":0,
              "propagationPolicy":"Background","preconditions":{"uid":"u1","resourceVersion":"7"}})"));
}

TEST(Client, SendsNoWriteAfterTheGuardIsRevoked) {
  ScriptedServer server([](auto& connection, const auto&) { connection.answer(200, "{}"); });
  const auto client = client_for(server);
  WriteGuard guard(monotonic_now() + seconds(100));
  ASSERT_TRUE(client->create(guard, kPods, "ns", pod("a"), soon()).ok());
  guard.revoke();
  EXPECT_TRUE(client->create(guard, kPods, "ns", pod("b"), soon()).is(ErrorKind::kFenced));
  EXPECT_TRUE(client->remove(guard, kPods, "ns", "a", {}, soon()).is(ErrorKind::kFenced));
  EXPECT_TRUE(client->get(kPods, "ns", "a", soon()).ok()) << "reads need no guard";
  EXPECT_EQ(server.requests().size(), 2U);
}

TEST(Client, AbortsAWriteWhenTheGuardExpires) {
  ManualClock clock;
  ScriptedServer server([&clock](auto& connection, const auto&) {
    clock.advance(seconds(10));
    connection.await_close();
  });
  SenderOptions options = no_retry_delay();
  options.clock = &clock;
  const auto client = client_for(server, options);
  const WriteGuard guard(clock.now() + seconds(10));
  const auto object = client->create(guard, kPods, "ns", pod("a"), soon());
  ASSERT_TRUE(object.is(ErrorKind::kFenced)) << object.error().sentence();
  EXPECT_TRUE(object.error().maybe_applied) << "the first attempt was sent";
  EXPECT_EQ(server.requests().size(), 1U);
}

TEST(Client, ListsPageByPage) {
  ScriptedServer server([](auto& connection, const auto& request) {
    if (request.target.find("continue=") == std::string::npos) {
      return connection.answer(200, list_text("10", object_text("a", "1"), "next page"));
    }
    connection.answer(200, list_text("10", object_text("b", "2")));
  });
  const auto client = client_for(server);
  Selection selection;
  selection.namespace_name = "ns";
  selection.label_selector = "a=b";
  const auto items = client->list_all(kPods, selection, soon());
  ASSERT_TRUE(items.ok()) << items.error().sentence();
  ASSERT_EQ(items->size(), 2U);
  EXPECT_EQ((*items)[1]["metadata"]["name"], "b");
  EXPECT_EQ(server.requests()[0].target,
            "/api/v1/namespaces/ns/pods?labelSelector=a%3Db&limit=250");
  EXPECT_THAT(server.requests()[1].target, HasSubstr("continue=next%20page"));
}

TEST(Client, RestartsAListWhenTheContinueTokenExpires) {
  ScriptedServer server([](auto& connection, const auto& request) {
    const bool first_page = request.target.find("continue=") == std::string::npos;
    if (!first_page) return connection.answer(410, status_text(410, "Expired"));
    const bool whole = request.target.find("limit=") == std::string::npos;
    connection.answer(200,
                      whole ? list_text("20", object_text("a", "1") + "," + object_text("b", "2"))
                            : list_text("10", object_text("old", "1"), "token"));
  });
  const auto client = client_for(server);
  const auto items = client->list_all(kPods, {}, soon());
  ASSERT_TRUE(items.ok()) << items.error().sentence();
  EXPECT_EQ(items->size(), 2U) << "the items before the restart are dropped";
  EXPECT_EQ(server.requests().size(), 5U);
}

TEST(Client, RejectsAResponseThatIsNotAList) {
  ScriptedServer server([](auto& connection, const auto&) { connection.answer(200, "{}"); });
  EXPECT_TRUE(client_for(server)->list_all(kPods, {}, soon()).is(ErrorKind::kProtocol));
}

TEST(Client, ServesConcurrentCallers) {
  ScriptedServer server([](auto& connection, const auto& request) {
    connection.answer(200, object_text(request.target.substr(request.target.rfind('/') + 1), "1"));
  });
  const auto client = client_for(server);
  constexpr int kCallers = 8;
  std::vector<std::future<bool>> callers;
  callers.reserve(kCallers);
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.push_back(std::async(std::launch::async, [&client, caller] {
      for (int i = 0; i < 25; ++i) {
        const std::string name = fmt::format("pod-{}-{}", caller, i);
        const auto object = client->get(kPods, "ns", name, soon());
        if (!object.ok() || (*object)["metadata"]["name"] != name) return false;
      }
      return true;
    }));
  }
  for (auto& caller : callers) EXPECT_TRUE(caller.get());
  for (const auto& request : server.requests()) EXPECT_LT(request.connection, 8);
}

TEST(Client, CanBeDestroyedWithRequestsInFlight) {
  ScriptedServer server([](auto& connection, const auto&) { connection.await_close(); });
  for (int i = 0; i < 20; ++i) {
    const auto client = client_for(server);
    EXPECT_TRUE(
        client->get(kPods, "ns", "a", net::within(milliseconds(1))).is(ErrorKind::kTimedOut));
  }
}

}  // namespace
}  // namespace tilewright::kube
