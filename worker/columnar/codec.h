// Decompresses the pages of Parquet files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/columnar/budget.h"
#include "worker/columnar/byte_reader.h"

namespace tilewright::columnar {

// The numbers of parquet.thrift, CompressionCodec.
enum class Codec : std::int32_t {
  kUncompressed = 0,
  kSnappy = 1,
  kGzip = 2,
  kLzo = 3,
  kBrotli = 4,
  kLz4 = 5,
  kZstd = 6,
  kLz4Raw = 7,
};
std::string codec_name(Codec codec);  // "SNAPPY"

// Uncompressed pages, which writers limit to about 1 MiB and one batch of values.
inline constexpr std::uint64_t kMaxPageBytes = 256u << 20;

class Decompressor {
 public:
  explicit Decompressor(std::size_t file_bytes)
      : budget_("decompressed data", file_bytes, kMaxDecompressedBytes) {}

  // The `size` bytes from which `compressed` was made. The result is valid until the next call and
  // as long as `compressed`. Throws Failure(kData) for a codec that is not supported, for corrupt
  // data and for data of another size.
  Bytes decompress(Codec codec, Bytes compressed, std::uint64_t size, const Location& location);

 private:
  Budget budget_;
  std::vector<std::byte> buffer_;
};

}  // namespace tilewright::columnar
