#include "worker/train/memory_need.h"

#include "common/base/result.h"

namespace tilewright::train {
namespace {

// Beside what is reckoned: the exchange's windows, the data set, the program itself.
constexpr std::uint64_t kRest = std::uint64_t{128} << 20;

std::uint64_t in_mib(std::uint64_t bytes) { return bytes >> 20; }

}  // namespace

std::uint64_t MemoryNeed::total() const {
  return weights + packed + activations + gradients + kRest;
}

void check_memory(const MemoryNeed& need, std::uint64_t available) {
  if (need.total() <= available) return;
  const bool batch_helps = need.total() - need.activations < available;
  throw Failure(
      ExitCode::kMemory,
      fmt::format("not enough memory: this training needs about {} MiB (weights and moments {}, "
                  "packed weights {}, activations of {} tokens {}, gradients {}), found {} MiB "
                  "available, expected {}",
                  in_mib(need.total()), in_mib(need.weights), in_mib(need.packed), need.tokens,
                  in_mib(need.activations), in_mib(need.gradients), in_mib(available),
                  batch_helps ? fmt::format("more or a smaller --{}", need.batch_flag)
                              : "more or a smaller model"));
}

}  // namespace tilewright::train
