#include "worker/collectives/crc32c.h"

#include <gtest/gtest.h>

#include <random>
#include <string_view>
#include <vector>

namespace tilewright::collectives {
namespace {

using Bytes = std::vector<std::byte>;
using Checksum = std::uint32_t (*)(std::span<const std::byte>, std::uint32_t);

constexpr Checksum kImplementations[] = {crc32c, crc32c_sse42, crc32c_portable};

Bytes bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Bytes random_bytes(std::size_t count) {
  std::mt19937 random(1);
  Bytes bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

TEST(Crc32c, HasTheValuesOfRfc3720) {
  Bytes ascending(32), descending(32);
  for (int i = 0; i < 32; ++i) {
    ascending[static_cast<std::size_t>(i)] = static_cast<std::byte>(i);
    descending[static_cast<std::size_t>(i)] = static_cast<std::byte>(31 - i);
  }
  const std::pair<Bytes, std::uint32_t> known[] = {{Bytes(32, std::byte{0}), 0x8A9136AA},
                                                   {Bytes(32, std::byte{0xFF}), 0x62A8AB43},
                                                   {ascending, 0x46DD794E},
                                                   {descending, 0x113FDB5C},
                                                   {bytes_of("123456789"), 0xE3069283},
                                                   {{}, 0}};
  for (const auto& [bytes, value] : known) {
    for (const Checksum checksum : kImplementations) EXPECT_EQ(checksum(bytes, 0), value);
  }
}

TEST(Crc32c, IsTheSameWithAnyInstructionsForAnyLengthAndAlignment) {
  const Bytes bytes = random_bytes(200'000);
  const auto all = std::span(bytes);
  for (const std::size_t offset : {0, 1, 7}) {
    for (const std::size_t count :
         {0,   1,    7,    8,    9,    63,   255,  256,   257,   511,   512,    513,
          768, 1023, 1024, 1535, 1536, 1537, 3079, 49151, 49152, 49153, 150'001}) {
      const auto part = all.subspan(offset, count);
      const std::uint32_t expected = crc32c_portable(part, 5);
      EXPECT_EQ(crc32c_sse42(part, 5), expected) << count << " bytes at " << offset;
      EXPECT_EQ(crc32c(part, 5), expected) << count << " bytes at " << offset;
    }
  }
}

TEST(Crc32c, ContinuesAChecksum) {
  const Bytes bytes = random_bytes(60'000);
  const auto all = std::span(bytes);
  for (const std::size_t cut : {0, 1, 1000, 50'000, 60'000}) {
    for (const Checksum checksum : kImplementations) {
      EXPECT_EQ(checksum(all.subspan(cut), checksum(all.first(cut), 0)), crc32c(all));
    }
  }
}

TEST(Crc32c, ChangesWithEveryBit) {
  Bytes bytes = random_bytes(5000);
  const std::uint32_t whole = crc32c(bytes);
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    EXPECT_NE(crc32c(bytes), whole) << "bit " << bit;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
  }
}

}  // namespace
}  // namespace tilewright::collectives
