#include <map>
#include <set>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/tcpstore/protocol.h"
#include "common/tcpstore/requests.h"
#include "common/tcpstore/store.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "tests/support/tcpstore_request.h"

namespace tilewright::fuzz {
namespace {

using namespace tcpstore;

constexpr StoreLimits kLimits{.keys = 64, .bytes = 64 << 10};
constexpr int kClients = 3;

// The requests up to the first error, however the bytes are cut.
std::vector<Request> read(std::string_view bytes, std::size_t piece) {
  RequestReader reader;
  std::vector<Request> requests;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    reader.append(bytes.substr(at, piece));
    while (true) {
      auto request = reader.next();
      if (!request.ok()) {
        check_message(request.error().message);
        return requests;
      }
      if (!request->has_value()) break;
      requests.push_back(std::move(**request));
    }
  }
  return requests;
}

void check_encoding(const Request& request) {
  const std::string encoded = testing::encode(request);
  TW_CHECK(encoded.size() == request.bytes, "{} has {} bytes, read as {}",
           to_string(request.operation), encoded.size(), request.bytes);
  const std::vector<Request> again = read(encoded, encoded.size());
  TW_CHECK(again.size() == 1 && again[0] == request, "{} changes when it is written and read",
           to_string(request.operation));
}

// A stream of requests, which the clients send in turn.
void run(const std::vector<Request>& requests) {
  Store store(kLimits);
  std::set<Store::Client> waiting;
  Store::Client client = 0;
  const auto end_waits = [&] {
    for (const Store::Client woken : store.take_woken())
      TW_CHECK(waiting.erase(woken) == 1, "client {} is woken and does not wait", woken);
  };
  for (const Request& request : requests) {
    client = (client + 1) % kClients;
    std::string reply;
    const bool may_wait =
        request.operation == Operation::kWait || request.operation == Operation::kBarrier;
    const Status status = execute(store, client, request, reply);
    TW_CHECK(reply.size() <= kMaxReplyBytes + kLengthBytes, "a reply of {} bytes", reply.size());
    if (!status.ok()) {  // the server closes the connection
      check_message(status.error().message);
      store.remove_client(client);
      waiting.erase(client);
    } else if (request.operation == Operation::kCancelWait) {
      waiting.erase(client);
    } else if (may_wait && reply.empty()) {
      waiting.insert(client);
    }
    end_waits();
    TW_CHECK(store.waiting() == waiting.size(), "{} clients wait, expected {}", store.waiting(),
             waiting.size());
    TW_CHECK(store.entries() <= kLimits.keys && store.bytes() <= kLimits.bytes,
             "{} entries of {} bytes are stored", store.entries(), store.bytes());
  }
  for (Store::Client one = 0; one < kClients; ++one) store.remove_client(one);
  TW_CHECK(store.waiting() == 0, "a client waits that does not exist");
  for (const std::string& key : store.keys()) store.remove(key);
  for (const Request& request : requests) {
    for (const std::string& key : request.keys) {
      while (store.queue_pop(0, key)) {
      }
    }
  }
  TW_CHECK(store.entries() == 0 && store.bytes() == 0, "an empty store counts {} entries, {} bytes",
           store.entries(), store.bytes());
}

}  // namespace

int fuzz_tcpstore(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes = as_text(data, size);
  const std::vector<Request> requests = read(bytes, bytes.size() + 1);
  TW_CHECK(requests == read(bytes, 1), "the requests depend on how they arrive");
  for (const Request& request : requests) check_encoding(request);
  run(requests);
  return 0;
}

}  // namespace tilewright::fuzz
