// The keys, queues and waiting clients of one store, without sockets or clocks. The semantics are
// those of PyTorch's libuv server (protocol.h names the source), except where a comment says
// otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace tilewright::tcpstore {

// What one store may hold.
struct StoreLimits {
  // Keys, items of queues and keys that clients wait for.
  std::size_t keys = 64 << 10;
  // Their bytes, values included, with kEntryBytes for each.
  std::size_t bytes = 16 << 20;
};

// Not thread-safe. Errors change nothing and carry kMemory (a limit of the store) or kUsage (a
// request that no client sends).
class Store {
 public:
  using Client = std::uint64_t;
  static constexpr std::size_t kEntryBytes = 128;  // memory of an entry beside its text

  explicit Store(StoreLimits limits = {}) : limits_(limits) {}

  Status set(const std::string& key, std::string value);
  // All of them or none.
  Status multi_set(std::span<const std::string> keys, std::span<const std::string> values);
  Status append(const std::string& key, std::string_view value);
  // The value; empty if the key does not exist.
  std::string_view get(const std::string& key) const;
  // Sets `desired` if the value is `expected`, or if `expected` is empty and the key does not
  // exist. Returns the value afterwards; `expected` if the key does not exist.
  Result<std::string> compare_set(const std::string& key, const std::string& expected,
                                  const std::string& desired);
  // Adds to a decimal number; a key that does not exist counts as 0. Returns the sum. kUsage: the
  // value is not a number, or the sum overflows.
  Result<std::int64_t> add(const std::string& key, std::int64_t delta);
  bool remove(const std::string& key);  // false: it does not exist
  std::size_t size() const { return values_.size(); }
  std::vector<std::string> keys() const;

  Status queue_push(const std::string& key, std::string value);
  // nullopt: the queue is empty.
  std::optional<std::string> queue_pop(Client client, const std::string& key);
  std::size_t queue_length(const std::string& key) const;

  // Whether each is a key or a queue that is not empty.
  bool check(std::span<const std::string> keys) const;
  // True if check() holds. Otherwise the client waits until every key has been written since, or
  // has been pushed to: a push ends the wait of one client. kUsage: the client waits already.
  Result<bool> wait(Client client, std::span<const std::string> keys);
  // Adds 1 to the key. True if it has reached `world_size`, which ends the waits for the key.
  // Otherwise the client waits for it.
  Result<bool> barrier(Client client, const std::string& key, std::int64_t world_size);
  // Ends the client's wait, if any, without waking it.
  void cancel_wait(Client client);
  // Forgets a client whose connection is closed. If a push woke it and it has not popped, another
  // client is woken in its place, which PyTorch's server does not do.
  void remove_client(Client client) { cancel_wait(client); }
  // The clients whose waits have ended since the last call, in this order.
  std::vector<Client> take_woken() { return std::exchange(woken_, {}); }
  std::size_t waiting() const { return waits_.size(); }

  // What counts for the limits.
  std::size_t entries() const { return entries_; }
  std::size_t bytes() const { return bytes_; }

 private:
  Status check_limits(std::size_t more_entries, std::size_t more_bytes) const;
  // Replaces the value without a check of the limits.
  void write(const std::string& key, std::string value);
  // What writing this value would add to bytes().
  std::size_t growth(const std::string& key, std::size_t value_bytes) const;
  Result<std::int64_t> number_at(const std::string& key) const;
  bool present(const std::string& key) const {
    return values_.contains(key) || queues_.contains(key);
  }
  Status start_wait(Client client, std::set<std::string> missing);
  void wake_all(const std::string& key);
  void wake_one(const std::string& key);
  // The key no longer keeps the client waiting; true if no other does.
  bool arrived(Client client, const std::string& key);
  void count(std::ptrdiff_t entries, std::ptrdiff_t bytes);

  const StoreLimits limits_;
  std::size_t entries_ = 0;
  std::size_t bytes_ = 0;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::deque<std::string>> queues_;  // without empty ones
  std::map<std::string, std::vector<Client>> waiting_;     // by key, the first to wait first
  std::map<Client, std::set<std::string>> waits_;          // the keys still missing
  std::map<Client, std::string> woken_by_push_;            // the queue, until the client pops
  std::vector<Client> woken_;
};

}  // namespace tilewright::tcpstore
