#include "worker/train/memory_estimate.h"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "common/base/result.h"
#include "worker/collectives/exchange.h"
#include "worker/runtime/memory.h"
#include "worker/train/collective_limits.h"

namespace tilewright::train {
namespace {

// What the estimate does not itemize: exchange buffers, the data set, the program itself.
constexpr std::uint64_t kOverheadBytes = std::uint64_t{128} << 20;
constexpr std::size_t kTouchedAtOnce = std::size_t{32} << 20;

std::uint64_t to_mib(std::uint64_t bytes) { return bytes >> 20; }

std::string describe_estimate(const MemoryEstimate& need) {
  return fmt::format(
      "needs about {} MiB (weights and moments {}, packed weights {}, activations of {} tokens {}, "
      "gradients {}{})",
      to_mib(need.total()), to_mib(need.weights), to_mib(need.packed), need.tokens,
      to_mib(need.activations), to_mib(need.gradients),
      need.checkpoint_copy == 0
          ? ""
          : fmt::format(", copy for checkpoints {}", to_mib(need.checkpoint_copy)));
}

// The end of a list of suggestions.
std::string suggestion(const MemoryEstimate& need, bool smaller_batch_fits) {
  if (!smaller_batch_fits) return " or a smaller model";
  return fmt::format("{} or a smaller --{}", need.can_recompute ? ", --gradient_checkpointing" : "",
                     need.batch_flag);
}

// The processes that share a pool: bytes, together.
struct PoolUse {
  std::uint64_t left = std::numeric_limits<std::uint64_t>::max();
  std::uint64_t needed = 0;
  std::uint64_t held = 0;  // of `needed`
  std::uint64_t sharers = 0;
};

PoolUse use_of(const std::string& name, const std::vector<MemoryDemand>& by_rank) {
  PoolUse use;
  for (const MemoryDemand& demand : by_rank) {
    for (const runtime::MemoryPool& pool : demand.pools) {
      if (pool.name != name) continue;
      // The processes read the pool at slightly different times; the minimum gives all of them the
      // same result.
      use.left = std::min(use.left, pool.left);
      use.needed += demand.need;
      use.held += demand.held;
      ++use.sharers;
    }
  }
  return use;
}

}  // namespace

std::uint64_t MemoryEstimate::total() const {
  return weights + packed + activations + gradients + checkpoint_copy + kOverheadBytes;
}

void check_memory(const MemoryEstimate& need, std::uint64_t available) {
  if (need.total() <= available) return;
  const bool smaller_batch_fits = need.total() - need.activations < available;
  throw Failure(ExitCode::kMemory,
                fmt::format("not enough memory: this training {}, found {} MiB available, expected "
                            "more{}",
                            describe_estimate(need), to_mib(available),
                            suggestion(need, smaller_batch_fits)));
}

std::uint64_t touch_buffers(const std::vector<std::span<std::byte>>& buffers,
                            runtime::ThreadPool& pool,
                            const std::function<std::uint64_t()>& available) {
  std::uint64_t total = 0;
  for (const auto buffer : buffers) total += buffer.size();
  std::uint64_t touched = 0;
  for (auto buffer : buffers) {
    while (!buffer.empty()) {
      if (available() < total - touched) return touched;
      const auto piece = buffer.first(std::min(buffer.size(), kTouchedAtOnce));
      runtime::touch_pages(piece, pool);
      touched += piece.size();
      buffer = buffer.subspan(piece.size());
    }
  }
  return touched;
}

MemoryDemand current_demand(std::uint64_t total, std::uint64_t held) {
  return {total, std::min(total, held), runtime::memory_pools()};
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
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("a worker sent an invalid memory demand: {}", error.what()));
  }
  return demand;
}

std::vector<MemoryDemand> gather_demands(collectives::Mesh& mesh, const MemoryDemand& own) {
  std::vector<MemoryDemand> demands;
  for (const std::string& text :
       collectives::all_gather(mesh, encode(own), kMaxCollectiveBytes, collective_deadline())) {
    demands.push_back(decode_demand(text));
  }
  return demands;
}

void check_shared_memory(const MemoryEstimate& need, const std::vector<MemoryDemand>& by_rank,
                         std::size_t rank) {
  for (const runtime::MemoryPool& own : by_rank.at(rank).pools) {
    const PoolUse use = use_of(own.name, by_rank);
    if (use.sharers == 1 || use.needed <= use.left + use.held) continue;
    const bool smaller_batch_fits =
        use.needed - use.sharers * need.activations < use.left + use.held;
    throw Failure(ExitCode::kMemory,
                  fmt::format("not enough memory: each of {} processes that share it {}, found {} "
                              "MiB available to them, expected more, fewer processes{}",
                              use.sharers, describe_estimate(need), to_mib(use.left + use.held),
                              suggestion(need, smaller_batch_fits)));
  }
}

std::uint64_t spare_memory(const std::vector<MemoryDemand>& by_rank, std::size_t rank) {
  std::uint64_t spare = std::numeric_limits<std::uint64_t>::max();
  for (const runtime::MemoryPool& own : by_rank.at(rank).pools) {
    const PoolUse use = use_of(own.name, by_rank);
    const std::uint64_t available = use.left + use.held;
    spare = std::min(spare, available > use.needed
                                ? (available - use.needed) / std::max<std::uint64_t>(use.sharers, 1)
                                : 0);
  }
  return spare;
}

}  // namespace tilewright::train
