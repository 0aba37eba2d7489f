// Sends what PyTorch's clients sent and expects what its servers replied (record.py).
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "common/tcpstore/server.h"
#include "tests/support/paths.h"
#include "tests/support/silent_logger.h"
#include "tests/support/tcpstore_client.h"

namespace tilewright::tcpstore {
namespace {

using tilewright::testing::make_silent_logger;
using tilewright::testing::TcpStoreClient;

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

class TcpStoreRecording : public ::testing::TestWithParam<const char*> {};

TEST_P(TcpStoreRecording, IsReproduced) {
  const auto path = testing::source_dir() / "tests/golden/tcpstore/data" / GetParam();
  std::ifstream file(path);
  ASSERT_TRUE(file) << path;
  const auto server =
      Server::start(
          {}, [](const net::Address&) { return StoreId("job"); }, make_silent_logger())
          .or_throw();
  std::map<int, TcpStoreClient> clients;
  std::string line;
  std::getline(file, line);  // the versions
  int steps = 0;
  for (; std::getline(file, line); ++steps) {
    const nlohmann::json step = nlohmann::json::parse(line);
    SCOPED_TRACE(step.at("step").get<std::string>());
    for (const nlohmann::json& chunk : step.at("bytes")) {
      const int number = chunk.at(0).get<int>();
      const std::string bytes = from_hex(chunk.at(2).get<std::string>());
      TcpStoreClient& client = clients.try_emplace(number, server->address()).first->second;
      if (chunk.at(1) == "client") {
        client.send(bytes);
      } else {
        EXPECT_EQ(client.receive(bytes.size()), bytes);
      }
    }
  }
  EXPECT_GT(steps, 30);
  for (auto& [number, client] : clients) client.ping();  // no reply is left
}

INSTANTIATE_TEST_SUITE_P(
    All, TcpStoreRecording, ::testing::Values("libuv.jsonl", "legacy.jsonl"),
    [](const auto& parameter) {
      return std::string(parameter.param).substr(0, std::string(parameter.param).find('.'));
    });

}  // namespace
}  // namespace tilewright::tcpstore
