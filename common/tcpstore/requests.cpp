#include "common/tcpstore/requests.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace tilewright::tcpstore {
namespace {

Error too_long(Operation operation, std::size_t bytes) {
  return {ExitCode::kMemory, fmt::format("the reply to {} has {} bytes, at most {} are allowed",
                                         to_string(operation), bytes, kMaxReplyBytes)};
}

Status multi_get(const Store& store, const Request& request, std::string& reply) {
  std::size_t bytes = 0;
  for (const std::string& key : request.keys) bytes += kLengthBytes + store.get(key).size();
  if (bytes > kMaxReplyBytes) return too_long(request.operation, bytes);
  for (const std::string& key : request.keys) append_string(reply, store.get(key));
  return {};
}

Status list_keys(const Store& store, std::string& reply) {
  const std::vector<std::string> keys = store.keys();
  std::size_t bytes = kLengthBytes;
  for (const std::string& key : keys) bytes += kLengthBytes + key.size();
  if (bytes > kMaxReplyBytes) return too_long(Operation::kListKeys, bytes);
  append_number(reply, static_cast<std::int64_t>(keys.size()));
  for (const std::string& key : keys) append_string(reply, key);
  return {};
}

Status wait(Result<bool> ended, std::string& reply) {
  if (!ended.ok()) return ended.error();
  if (*ended) reply += kStopWaiting;
  return {};
}

}  // namespace

Status execute(Store& store, Store::Client client, Request request, std::string& reply) {
  switch (request.operation) {
    case Operation::kValidate:
      if (request.number == kMagic) return {};
      return Error{ExitCode::kUsage, fmt::format("VALIDATE with the number {:#x}, expected {:#x}",
                                                 request.number, kMagic)};
    case Operation::kSet:
      return store.set(request.keys[0], std::move(request.values[0]));
    case Operation::kCompareSet: {
      const auto value = store.compare_set(request.keys[0], request.values[0], request.values[1]);
      if (!value.ok()) return value.error();
      append_string(reply, *value);
      return {};
    }
    case Operation::kGet:
      append_string(reply, store.get(request.keys[0]));
      return {};
    case Operation::kAdd: {
      const auto sum = store.add(request.keys[0], request.number);
      if (!sum.ok()) return sum.error();
      append_number(reply, *sum);
      return {};
    }
    case Operation::kCheck:
      reply += store.check(request.keys) ? kReady : kNotReady;
      return {};
    case Operation::kWait:
      return wait(store.wait(client, request.keys), reply);
    case Operation::kGetNumKeys:
      append_number(reply, static_cast<std::int64_t>(store.size()));
      return {};
    case Operation::kDeleteKey:
      append_number(reply, store.remove(request.keys[0]) ? 1 : 0);
      return {};
    case Operation::kAppend:
      return store.append(request.keys[0], request.values[0]);
    case Operation::kMultiGet:
      return multi_get(store, request, reply);
    case Operation::kMultiSet:
      return store.multi_set(request.keys, request.values);
    case Operation::kCancelWait:
      store.cancel_wait(client);
      reply += kWaitCanceled;
      return {};
    case Operation::kPing: {
      std::string number;
      append_number(number, request.number);
      reply.append(number, 0, 4);
      return {};
    }
    case Operation::kQueuePush:
      return store.queue_push(request.keys[0], std::move(request.values[0]));
    case Operation::kQueuePop: {
      append_number(reply, static_cast<std::int64_t>(store.queue_length(request.keys[0])));
      if (const auto value = store.queue_pop(client, request.keys[0])) append_string(reply, *value);
      return {};
    }
    case Operation::kQueueLen:
      append_number(reply, static_cast<std::int64_t>(store.queue_length(request.keys[0])));
      return {};
    case Operation::kListKeys:
      return list_keys(store, reply);
    case Operation::kBarrier:
      return wait(store.barrier(client, request.keys[0], request.number), reply);
  }
  return Error{ExitCode::kUsage, "an unknown operation"};
}

}  // namespace tilewright::tcpstore
