// Tests of HttpServer over real connections: its responses, and that connections that send or read
// nothing do not delay the others.
#include "common/net/http_server.h"

#include <gmock/gmock.h>
#include <poll.h>

#include <stdexcept>
#include <vector>

#include "tests/unit/common/net/net_fixtures.h"

namespace tilewright::net {
namespace {

using std::chrono::milliseconds;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr milliseconds kShort{50};

// A busy machine cannot expire these.
HttpLimits patient() {
  HttpLimits limits;
  limits.request_timeout = limits.response_timeout = std::chrono::hours(1);
  return limits;
}

std::unique_ptr<HttpServer> serve(HttpLimits limits = patient(), const std::string& body = "ok\n") {
  HttpServer::Handlers handlers;
  handlers["/page"] = [body] { return HttpResponse{200, "text/plain", body}; };
  handlers["/busy"] = [] { return HttpResponse{503, "text/plain", "not yet\n"}; };
  handlers["/broken"] = []() -> HttpResponse { throw std::runtime_error("a bug"); };
  return HttpServer::start({"127.0.0.1", 0}, std::move(handlers), limits).or_throw();
}

Socket connect(const HttpServer& server) {
  return connect_to({"127.0.0.1", server.port()}, soon()).or_throw();
}

void send(Socket& socket, std::string_view text) {
  socket.write_all(bytes_of(text), soon()).or_throw();
}

// Everything until the server closes the connection; fails the test if it does not.
std::string read_to_end(Socket& socket) {
  const Wait wait = soon();
  std::string text;
  std::byte one{};
  while (socket.read_exact(std::span(&one, 1), wait).ok()) text += static_cast<char>(one);
  EXPECT_TRUE(socket.peer_closed()) << text;
  return text;
}

std::string answer_to(const HttpServer& server, std::string_view request) {
  Socket socket = connect(server);
  send(socket, request);
  return read_to_end(socket);
}

// Waits without reading; false on timeout.
bool await_close(const Socket& socket) {
  return wait_ready(socket.fd(), POLLRDHUP, soon()) == Ready::kYes;
}

std::vector<Socket> idle_connections(const HttpServer& server, int count) {
  std::vector<Socket> idle;
  idle.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) idle.push_back(connect(server));
  return idle;
}

TEST(HttpServer, AnswersAndClosesTheConnection) {
  const auto server = serve();
  EXPECT_EQ(answer_to(*server, "GET /page HTTP/1.1\r\nHost: x\r\n\r\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 3\r\n"
            "Connection: close\r\n\r\nok\n");
  EXPECT_THAT(answer_to(*server, "GET /page?x=1 HTTP/1.0\r\n\r\n"), EndsWith("\r\n\r\nok\n"));
  EXPECT_THAT(answer_to(*server, "GET /busy HTTP/1.1\r\n\r\n"),
              StartsWith("HTTP/1.1 503 Service Unavailable\r\n"));
}

TEST(HttpServer, RefusesOtherRequests) {
  const auto server = serve();
  const std::pair<const char*, const char*> cases[] = {
      {"GET /other HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "},
      {"GET /page/ HTTP/1.1\r\n\r\n", "HTTP/1.1 404 "},
      {"POST /page HTTP/1.1\r\n\r\n", "HTTP/1.1 405 "},
      {"GET /page\r\n\r\n", "HTTP/1.1 400 "},
      {"\r\n\r\n", "HTTP/1.1 400 "},
      {"GET /page SMTP\r\n\r\n", "HTTP/1.1 400 "},
  };
  for (const auto& [request, status] : cases) {
    EXPECT_THAT(answer_to(*server, request), StartsWith(status)) << request;
  }
}

TEST(HttpServer, RefusesARequestThatIsTooLong) {
  HttpLimits limits = patient();
  limits.max_request_bytes = 100;
  const auto server = serve(limits);
  EXPECT_THAT(answer_to(*server, "GET /page HTTP/1.1\r\nX: " + std::string(90, 'x')),
              StartsWith("HTTP/1.1 431 "));
}

TEST(HttpServer, AnswersAfterAHandlerHasThrown) {
  const auto server = serve();
  EXPECT_THAT(answer_to(*server, "GET /broken HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 500 "));
  EXPECT_THAT(answer_to(*server, "GET /page HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200 "));
}

TEST(HttpServer, AnswersARequestThatArrivesInPieces) {
  const auto server = serve();
  Socket socket = connect(*server);
  for (const char letter : std::string_view("GET /page HTTP/1.1\r\n\r\n")) {
    send(socket, std::string_view(&letter, 1));
  }
  EXPECT_THAT(read_to_end(socket), EndsWith("ok\n"));
}

TEST(HttpServer, AnswersWhileStrangersHoldConnections) {
  const auto server = serve();
  const std::vector<Socket> idle = idle_connections(*server, 300);
  EXPECT_THAT(answer_to(*server, "GET /page HTTP/1.1\r\n\r\n"), EndsWith("ok\n"));
}

TEST(HttpServer, ReplacesTheOldestConnectionAtTheMaximum) {
  HttpLimits limits = patient();
  limits.max_connections = 2;
  const auto server = serve(limits);
  std::vector<Socket> idle = idle_connections(*server, 3);
  EXPECT_TRUE(await_close(idle[0]));
  for (Socket* socket : {&idle[1], &idle[2]}) {
    send(*socket, "GET /page HTTP/1.1\r\n\r\n");
    EXPECT_THAT(read_to_end(*socket), EndsWith("ok\n"));
  }
}

TEST(HttpServer, ClosesAConnectionWithoutARequestInTime) {
  HttpLimits limits = patient();
  limits.request_timeout = kShort;
  const auto server = serve(limits);
  const Socket silent = connect(*server);
  EXPECT_TRUE(await_close(silent));
}

// Each byte is progress, but the deadline is that of the whole request.
TEST(HttpServer, ClosesAConnectionThatSendsTooSlowly) {
  HttpLimits limits = patient();
  limits.request_timeout = kShort;
  const auto server = serve(limits);
  Socket slow = connect(*server);
  const MonotonicTime deadline = soon().deadline;
  while (!slow.peer_closed() && monotonic_now() < deadline) {
    (void)slow.write_all(bytes_of("G"), soon());
    wait_ready(slow.fd(), POLLRDHUP, within(milliseconds(5)));
  }
  EXPECT_TRUE(slow.peer_closed());
}

TEST(HttpServer, ClosesAConnectionThatDoesNotTakeTheResponse) {
  HttpLimits limits = patient();
  limits.response_timeout = kShort;
  const std::size_t size = std::size_t{64} << 20;  // more than the buffers of both sockets
  const auto server = serve(limits, std::string(size, 'x'));
  Socket socket = connect(*server);
  send(socket, "GET /page HTTP/1.1\r\n\r\n");
  EXPECT_TRUE(await_close(socket));
}

TEST(HttpServer, SendsALongResponseWhole) {
  const std::size_t size = std::size_t{16} << 20;
  const auto server = serve(patient(), std::string(size, 'x'));
  Socket socket = connect(*server);
  send(socket, "GET /page HTTP/1.1\r\n\r\n");
  const std::string head =
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 16777216\r\n"
      "Connection: close\r\n\r\n";
  EXPECT_EQ(read_text(socket, head.size()), head);
  EXPECT_EQ(read_text(socket, size), std::string(size, 'x'));
}

TEST(HttpServer, ReportsAPortInUse) {
  const auto server = serve();
  const auto second = HttpServer::start({"127.0.0.1", server->port()}, {});
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, ExitCode::kUsage);
  EXPECT_THAT(second.error().message, HasSubstr(std::to_string(server->port())));
}

}  // namespace
}  // namespace tilewright::net
