// Serves TCPStores for programs other than tests: tcpstore_server PORT HOST=JOB... prints the port
// that it listens on (0 selects one) and runs until its standard input ends. HOST is the numeric
// address of a client, JOB the name of its store.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

#include "common/tcpstore/server.h"

int main(int count, char** arguments) {
  using namespace tilewright;
  if (count < 3) {
    fmt::print(stderr, "usage: tcpstore_server PORT HOST=JOB...\n");
    return 2;
  }
  std::map<std::string, tcpstore::StoreId> jobs;
  for (int i = 2; i < count; ++i) {
    const std::string job = arguments[i];
    const std::size_t equals = job.find('=');
    if (equals == std::string::npos) {
      fmt::print(stderr, "tcpstore_server: \"{}\", expected HOST=JOB\n", job);
      return 2;
    }
    jobs[job.substr(0, equals)] = job.substr(equals + 1);
  }
  tcpstore::Server::Options options;
  options.listen = {"127.0.0.1", static_cast<std::uint16_t>(std::atoi(arguments[1]))};
  auto server = tcpstore::Server::start(
      options,
      [&jobs](const net::Address& peer) -> std::optional<tcpstore::StoreId> {
        const auto found = jobs.find(peer.host);
        return found == jobs.end() ? std::nullopt : std::optional(found->second);
      },
      make_logger("debug"));
  if (!server) {
    fmt::print(stderr, "tcpstore_server: {}\n", server.error().message);
    return 2;
  }
  fmt::print("{}\n", (*server)->address().port);
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  for (const auto& [reason, number] : (*server)->rejections()) {
    if (number > 0) fmt::print("rejected: {} {}\n", reason, number);
  }
  return 0;
}
