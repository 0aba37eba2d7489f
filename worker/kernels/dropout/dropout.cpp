// The generator in plain integer arithmetic. The vector versions return the same bits.
#include "worker/kernels/dropout/dropout.h"

#include "worker/runtime/split_mix.h"

namespace tilewright::kernels {

DropoutStream make_dropout_stream(const Dropout& dropout) {
  const std::uint64_t key = runtime::SplitMix64::nth(dropout.seed, std::uint64_t{dropout.step} + 1);
  return {{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)},
          dropout.site,
          dropout.threshold,
          dropout.threshold == 0 ? 1.0f : dropout.scale};
}

PhiloxBlock philox4x32_10(PhiloxBlock c, std::array<std::uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = std::uint64_t{0xd2511f53u} * c[0];
    const std::uint64_t p1 = std::uint64_t{0xcd9e8d57u} * c[2];
    c = {static_cast<std::uint32_t>(p1 >> 32) ^ c[1] ^ key[0], static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32) ^ c[3] ^ key[1], static_cast<std::uint32_t>(p0)};
    key[0] += 0x9e3779b9u;
    key[1] += 0xbb67ae85u;
  }
  return c;
}

void dropout_masks_ref(const DropoutStream& stream, std::int32_t example, std::int32_t row,
                       std::int32_t head, std::int64_t columns, std::uint64_t* masks) {
  for (std::int64_t block = 0; block * kDropoutBlock < columns; ++block) {
    std::uint64_t mask = 0;
    for (int lane = 0; lane < 8; ++lane) {
      const PhiloxBlock words = philox4x32_10(
          {static_cast<std::uint32_t>(block * 8 + lane), static_cast<std::uint32_t>(row),
           stream.site | static_cast<std::uint32_t>(head) << 16,
           static_cast<std::uint32_t>(example)},
          {stream.key[0], stream.key[1]});
      for (int q = 0; q < 4; ++q) {
        const std::uint64_t low = (words[q] & 0xffffu) >= stream.threshold ? 1 : 0;
        const std::uint64_t high = (words[q] >> 16) >= stream.threshold ? 1 : 0;
        mask |= (low | high << 1) << (16 * q + 2 * lane);
      }
    }
    masks[block] = mask;
  }
}

}  // namespace tilewright::kernels
