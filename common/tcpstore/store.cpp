#include "common/tcpstore/store.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>

#include "common/base/printable.h"

namespace tilewright::tcpstore {

Status Store::check_limits(std::size_t more_entries, std::size_t more_bytes) const {
  if (entries_ + more_entries > limits_.keys)
    return Error{ExitCode::kMemory, fmt::format("the store would hold {} keys, at most {} are "
                                                "allowed",
                                                entries_ + more_entries, limits_.keys)};
  if (bytes_ + more_bytes > limits_.bytes)
    return Error{ExitCode::kMemory, fmt::format("the store would use {} bytes of memory, at most "
                                                "{} are allowed",
                                                bytes_ + more_bytes, limits_.bytes)};
  return {};
}

void Store::count(std::ptrdiff_t entries, std::ptrdiff_t bytes) {
  entries_ += static_cast<std::size_t>(entries);
  bytes_ += static_cast<std::size_t>(bytes + entries * static_cast<std::ptrdiff_t>(kEntryBytes));
}

std::size_t Store::growth(const std::string& key, std::size_t value_bytes) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return kEntryBytes + key.size() + value_bytes;
  return value_bytes - std::min(value_bytes, found->second.size());
}

void Store::write(const std::string& key, std::string value) {
  const auto [at, added] = values_.try_emplace(key);
  count(added ? 1 : 0, static_cast<std::ptrdiff_t>((added ? key.size() : 0) + value.size()) -
                           static_cast<std::ptrdiff_t>(at->second.size()));
  at->second = std::move(value);
}

Status Store::set(const std::string& key, std::string value) {
  if (Status status = check_limits(values_.contains(key) ? 0 : 1, growth(key, value.size()));
      !status.ok())
    return status;
  write(key, std::move(value));
  wake_all(key);
  return {};
}

Status Store::multi_set(std::span<const std::string> keys, std::span<const std::string> values) {
  // An upper bound if a key occurs twice.
  std::size_t entries = 0, bytes = 0;
  for (std::size_t i = 0; i < keys.size(); ++i) {
    entries += values_.contains(keys[i]) ? 0 : 1;
    bytes += growth(keys[i], values[i].size());
  }
  if (Status status = check_limits(entries, bytes); !status.ok()) return status;
  for (std::size_t i = 0; i < keys.size(); ++i) write(keys[i], values[i]);
  for (const std::string& key : keys) wake_all(key);
  return {};
}

Status Store::append(const std::string& key, std::string_view value) {
  const auto found = values_.find(key);
  if (found == values_.end()) return set(key, std::string(value));
  if (Status status = check_limits(0, value.size()); !status.ok()) return status;
  found->second += value;
  count(0, static_cast<std::ptrdiff_t>(value.size()));
  wake_all(key);
  return {};
}

std::string_view Store::get(const std::string& key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? std::string_view() : found->second;
}

Result<std::string> Store::compare_set(const std::string& key, const std::string& expected,
                                       const std::string& desired) {
  const auto found = values_.find(key);
  if (found == values_.end() && !expected.empty()) return expected;
  if (found != values_.end() && found->second != expected) return found->second;
  if (Status status = set(key, desired); !status.ok()) return status.error();
  return desired;
}

// Reads what std::stoll reads: white space, a sign, digits; the rest is ignored.
Result<std::int64_t> Store::number_at(const std::string& key) const {
  const auto found = values_.find(key);
  if (found == values_.end()) return std::int64_t{0};
  std::string_view text = found->second;
  const auto first = std::ranges::find_if_not(
      text, [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; });
  text.remove_prefix(static_cast<std::size_t>(first - text.begin()));
  if (text.starts_with('+') && !text.substr(1).starts_with('-')) text.remove_prefix(1);
  std::int64_t number = 0;
  if (std::from_chars(text.data(), text.data() + text.size(), number).ec != std::errc())
    return Error{ExitCode::kUsage, fmt::format("the value of key {} is not a number of 64 bits",
                                               quoted_excerpt(key))};
  return number;
}

Result<std::int64_t> Store::add(const std::string& key, std::int64_t delta) {
  const Result<std::int64_t> before = number_at(key);
  if (!before.ok()) return before.error();
  std::int64_t sum = 0;
  if (__builtin_add_overflow(*before, delta, &sum))
    return Error{ExitCode::kUsage, fmt::format("{} + {} at key {} needs more than 64 bits", *before,
                                               delta, quoted_excerpt(key))};
  if (Status status = set(key, std::to_string(sum)); !status.ok()) return status.error();
  return sum;
}

bool Store::remove(const std::string& key) {
  const auto found = values_.find(key);
  if (found == values_.end()) return false;
  count(-1, -static_cast<std::ptrdiff_t>(key.size() + found->second.size()));
  values_.erase(found);
  return true;
}

std::vector<std::string> Store::keys() const {
  std::vector<std::string> result;
  result.reserve(values_.size());
  for (const auto& [key, value] : values_) result.push_back(key);
  return result;
}

Status Store::queue_push(const std::string& key, std::string value) {
  const std::size_t bytes = key.size() + value.size();
  if (Status status = check_limits(1, kEntryBytes + bytes); !status.ok()) return status;
  count(1, static_cast<std::ptrdiff_t>(bytes));
  queues_[key].push_back(std::move(value));
  wake_one(key);
  return {};
}

std::optional<std::string> Store::queue_pop(Client client, const std::string& key) {
  if (const auto woken = woken_by_push_.find(client);
      woken != woken_by_push_.end() && woken->second == key)
    woken_by_push_.erase(woken);
  const auto found = queues_.find(key);
  if (found == queues_.end()) return std::nullopt;
  std::string value = std::move(found->second.front());
  found->second.pop_front();
  count(-1, -static_cast<std::ptrdiff_t>(key.size() + value.size()));
  if (found->second.empty()) queues_.erase(found);
  return value;
}

std::size_t Store::queue_length(const std::string& key) const {
  const auto found = queues_.find(key);
  return found == queues_.end() ? 0 : found->second.size();
}

bool Store::check(std::span<const std::string> keys) const {
  return std::ranges::all_of(keys, [this](const std::string& key) { return present(key); });
}

Result<bool> Store::wait(Client client, std::span<const std::string> keys) {
  std::set<std::string> missing;
  for (const std::string& key : keys) {
    if (!present(key)) missing.insert(key);
  }
  if (missing.empty()) return true;
  if (Status status = start_wait(client, std::move(missing)); !status.ok()) return status.error();
  return false;
}

Result<bool> Store::barrier(Client client, const std::string& key, std::int64_t world_size) {
  const Result<std::int64_t> before = number_at(key);
  if (!before.ok()) return before.error();
  std::int64_t calls = 0;
  if (__builtin_add_overflow(*before, 1, &calls))
    return Error{ExitCode::kUsage,
                 fmt::format("the barrier {} has been called too often", quoted_excerpt(key))};
  std::string value = std::to_string(calls);
  const std::size_t added = values_.contains(key) ? 0 : 1;
  const std::size_t more_bytes = growth(key, value.size());
  if (Status status = check_limits(added, more_bytes); !status.ok()) return status.error();
  if (calls < world_size) {
    // Checked for both, so that an Error changes nothing.
    Status status = check_limits(added + 1, more_bytes + kEntryBytes + key.size());
    if (status.ok()) status = start_wait(client, {key});
    if (!status.ok()) return status.error();
    write(key, std::move(value));
    return false;
  }
  write(key, std::move(value));
  wake_all(key);
  return true;
}

Status Store::start_wait(Client client, std::set<std::string> missing) {
  if (waits_.contains(client))
    return Error{ExitCode::kUsage, "a wait while the same connection waits already"};
  std::size_t bytes = 0;
  for (const std::string& key : missing) bytes += key.size();
  if (Status status = check_limits(missing.size(), missing.size() * kEntryBytes + bytes);
      !status.ok())
    return status;
  count(static_cast<std::ptrdiff_t>(missing.size()), static_cast<std::ptrdiff_t>(bytes));
  woken_by_push_.erase(client);
  for (const std::string& key : missing) waiting_[key].push_back(client);
  waits_.emplace(client, std::move(missing));
  return {};
}

void Store::cancel_wait(Client client) {
  if (const auto found = waits_.find(client); found != waits_.end()) {
    for (const std::string& key : found->second) {
      const auto others = waiting_.find(key);
      std::erase(others->second, client);
      if (others->second.empty()) waiting_.erase(others);
      count(-1, -static_cast<std::ptrdiff_t>(key.size()));
    }
    waits_.erase(found);
  }
  if (const auto woken = woken_by_push_.extract(client);
      !woken.empty() && queues_.contains(woken.mapped()))
    wake_one(woken.mapped());
}

bool Store::arrived(Client client, const std::string& key) {
  const auto wait = waits_.find(client);
  wait->second.erase(key);
  count(-1, -static_cast<std::ptrdiff_t>(key.size()));
  if (!wait->second.empty()) return false;
  waits_.erase(wait);
  woken_.push_back(client);
  return true;
}

void Store::wake_all(const std::string& key) {
  const auto clients = waiting_.extract(key);
  if (clients.empty()) return;
  for (const Client client : clients.mapped()) arrived(client, key);
}

void Store::wake_one(const std::string& key) {
  const auto found = waiting_.find(key);
  if (found == waiting_.end()) return;
  std::vector<Client>& clients = found->second;
  // Clients that wait for more keys than this one are not woken, so the next one is.
  auto next = clients.begin();
  while (next != clients.end()) {
    const Client client = *next++;
    if (!arrived(client, key)) continue;
    woken_by_push_[client] = key;
    break;
  }
  clients.erase(clients.begin(), next);
  if (clients.empty()) waiting_.erase(found);
}

}  // namespace tilewright::tcpstore
