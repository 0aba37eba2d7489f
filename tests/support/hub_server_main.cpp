// Serves a directory as a hub, for clients other than tests: hub_server DIRECTORY [NAME=TARGET...]
// prints the value of HF_ENDPOINT and runs until its standard input ends. NAME=TARGET: an alias of
// a model, datasets/NAME=TARGET: of a data set.
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "tests/support/hub_server.h"

int main(int count, char** arguments) {
  using tilewright::testing::HubServer;
  if (count < 2) {
    fmt::print(stderr, "usage: hub_server DIRECTORY [NAME=TARGET...]\n");
    return 2;
  }
  HubServer server;
  server.add_directory(arguments[1]);
  for (int i = 2; i < count; ++i) {
    std::string alias = arguments[i];
    const bool dataset = alias.starts_with("datasets/");
    if (dataset) alias.erase(0, alias.find('/') + 1);
    const std::size_t equals = alias.find('=');
    server.add_alias(dataset ? HubServer::Type::kDataset : HubServer::Type::kModel,
                     alias.substr(0, equals), alias.substr(equals + 1));
  }
  fmt::print("{}\n", server.endpoint());
  std::fflush(stdout);
  while (std::getchar() != EOF) {
  }
  for (const auto& request : server.requests()) {
    fmt::print("{} {}{} {}\n", request.method, request.storage ? "storage:" : "", request.target,
               request.range);
  }
  return 0;
}
