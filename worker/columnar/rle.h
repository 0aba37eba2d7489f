// Parquet's hybrid of run lengths and bit packing, for levels, dictionary indices and booleans.
// Source: Encodings.md of the Parquet format, "Run Length Encoding / Bit-Packing Hybrid".
#pragma once

#include <cstdint>
#include <span>

#include "worker/columnar/byte_reader.h"

namespace tilewright::columnar {

class RleDecoder {
 public:
  // `bit_width` is at most 32. With a width of 0 every value is 0 and no bytes are read.
  // `location` must outlive the decoder.
  RleDecoder(Bytes bytes, unsigned bit_width, const Location& location);

  // Fills `out`. Throws Failure(kData) if the bytes end before.
  void read(std::span<std::uint32_t> out);

 private:
  void begin_run();
  void unpack(std::span<std::uint32_t> out);

  ByteReader bytes_;
  unsigned bit_width_;
  std::uint64_t repeats_ = 0;  // values left of a run of equal values
  std::uint32_t value_ = 0;
  std::uint64_t packed_ = 0;  // values left of a bit-packed run
  Bytes packed_bytes_{};
  std::uint64_t packed_bit_ = 0;  // the first bit of the next value in packed_bytes_
};

}  // namespace tilewright::columnar
