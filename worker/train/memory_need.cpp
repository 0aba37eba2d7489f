#include "worker/train/memory_need.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "common/base/result.h"

namespace tilewright::train {
namespace {

// Beside what is reckoned: the exchange's windows, the data set, the program itself.
constexpr std::uint64_t kRest = std::uint64_t{128} << 20;

std::uint64_t in_mib(std::uint64_t bytes) { return bytes >> 20; }

std::string in_words(const MemoryNeed& need) {
  return fmt::format(
      "needs about {} MiB (weights and moments {}, packed weights {}, activations of {} tokens {}, "
      "gradients {})",
      in_mib(need.total()), in_mib(need.weights), in_mib(need.packed), need.tokens,
      in_mib(need.activations), in_mib(need.gradients));
}

std::string remedy(const MemoryNeed& need, bool batch_helps) {
  return batch_helps ? fmt::format("a smaller --{}", need.batch_flag) : "a smaller model";
}

}  // namespace

std::uint64_t MemoryNeed::total() const {
  return weights + packed + activations + gradients + kRest;
}

void check_memory(const MemoryNeed& need, std::uint64_t available) {
  if (need.total() <= available) return;
  const bool batch_helps = need.total() - need.activations < available;
  throw Failure(ExitCode::kMemory,
                fmt::format("not enough memory: this training {}, found {} MiB available, expected "
                            "more or {}",
                            in_words(need), in_mib(available), remedy(need, batch_helps)));
}

MemoryDemand demand_now(std::uint64_t total) {
  return {total, std::min(total, runtime::held_memory()), runtime::memory_pools()};
}

std::string encode(const MemoryDemand& demand) {
  nlohmann::json pools = nlohmann::json::object();
  for (const runtime::MemoryPool& pool : demand.pools) pools[pool.name] = pool.left;
  return nlohmann::json{{"need", demand.need}, {"held", demand.held}, {"pools", pools}}.dump();
}

MemoryDemand decode_demand(const std::string& text) {
  MemoryDemand demand;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    json.at("need").get_to(demand.need);
    json.at("held").get_to(demand.held);
    for (const auto& [name, left] : json.at("pools").items()) {
      demand.pools.push_back({name, left.get<std::uint64_t>()});
    }
  } catch (const nlohmann::json::exception& error) {
    throw Failure(
        ExitCode::kPeerLost,
        fmt::format("a worker sent a demand of memory that does not decode: {}", error.what()));
  }
  return demand;
}

void check_shared_memory(const MemoryNeed& need, const std::vector<MemoryDemand>& by_rank,
                         std::size_t rank) {
  for (const runtime::MemoryPool& own : by_rank.at(rank).pools) {
    std::uint64_t left = own.left;
    std::uint64_t needed = 0;
    std::uint64_t held = 0;
    std::uint64_t sharers = 0;
    for (const MemoryDemand& demand : by_rank) {
      for (const runtime::MemoryPool& pool : demand.pools) {
        if (pool.name != own.name) continue;
        // Read at about the same time; what one took in between may not make two opinions.
        left = std::min(left, pool.left);
        needed += demand.need;
        held += demand.held;
        ++sharers;
      }
    }
    if (sharers == 1 || needed <= left + held) continue;
    const bool batch_helps = needed - sharers * need.activations < left + held;
    throw Failure(
        ExitCode::kMemory,
        fmt::format("not enough memory: each of {} processes that share it {}, found {} "
                    "MiB available to them, expected more, fewer processes or {}",
                    sharers, in_words(need), in_mib(left + held), remedy(need, batch_helps)));
  }
}

}  // namespace tilewright::train
