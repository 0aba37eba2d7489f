#include "worker/columnar/codec.h"

#include <fmt/format.h>
#include <snappy-c.h>
#include <zlib.h>
#include <zstd.h>

#include <limits>
#include <span>

namespace tilewright::columnar {
namespace {

// Each returns whether `in` decompresses to exactly out.size() bytes.
bool unsnappy(Bytes in, std::span<std::byte> out) {
  const auto* data = reinterpret_cast<const char*>(in.data());
  std::size_t size = 0;
  if (snappy_uncompressed_length(data, in.size(), &size) != SNAPPY_OK || size != out.size()) {
    return false;
  }
  return snappy_uncompress(data, in.size(), reinterpret_cast<char*>(out.data()), &size) ==
         SNAPPY_OK;
}

bool gunzip(Bytes in, std::span<std::byte> out) {
  constexpr int kGzipOrZlibHeader = 32 + MAX_WBITS;
  z_stream stream{};
  if (inflateInit2(&stream, kGzipOrZlibHeader) != Z_OK) return false;
  stream.next_in = reinterpret_cast<const Bytef*>(in.data());
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int ended = inflate(&stream, Z_FINISH);
  const bool complete = ended == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return complete;
}

bool unzstd(Bytes in, std::span<std::byte> out) {
  const std::size_t size = ZSTD_decompress(out.data(), out.size(), in.data(), in.size());
  return ZSTD_isError(size) == 0 && size == out.size();
}

}  // namespace

std::string codec_name(Codec codec) {
  switch (codec) {
    case Codec::kUncompressed:
      return "UNCOMPRESSED";
    case Codec::kSnappy:
      return "SNAPPY";
    case Codec::kGzip:
      return "GZIP";
    case Codec::kLzo:
      return "LZO";
    case Codec::kBrotli:
      return "BROTLI";
    case Codec::kLz4:
      return "LZ4";
    case Codec::kZstd:
      return "ZSTD";
    case Codec::kLz4Raw:
      return "LZ4_RAW";
  }
  return fmt::format("number {}", static_cast<std::int32_t>(codec));
}

Bytes Decompressor::decompress(Codec codec, Bytes compressed, std::uint64_t size,
                               const Location& location) {
  if (codec == Codec::kUncompressed) {
    if (compressed.size() != size) {
      location.fail(
          fmt::format("found {} uncompressed bytes, expected {}", compressed.size(), size));
    }
    return compressed;
  }
  bool (*const decoder)(Bytes, std::span<std::byte>) = codec == Codec::kSnappy ? unsnappy
                                                       : codec == Codec::kGzip ? gunzip
                                                       : codec == Codec::kZstd ? unzstd
                                                                               : nullptr;
  if (decoder == nullptr) {
    location.fail(fmt::format("found the codec {}, expected UNCOMPRESSED, SNAPPY, GZIP or ZSTD",
                              codec_name(codec)));
  }
  if (size > kMaxPageBytes) {
    location.fail(fmt::format("the page has {} bytes, expected at most {}", size, kMaxPageBytes));
  }
  static_assert(kMaxPageBytes <= std::numeric_limits<uInt>::max());
  if (compressed.size() > 2 * kMaxPageBytes) {
    location.fail(fmt::format("the compressed page has {} bytes, expected at most {}",
                              compressed.size(), 2 * kMaxPageBytes));
  }
  budget_.take(size, location);
  if (buffer_.size() < size) buffer_.resize(size);
  const auto out = std::span(buffer_).first(size);
  if (size > 0 && !decoder(compressed, out)) {
    location.fail(fmt::format("the {} data is corrupt, expected {} bytes after decompression",
                              codec_name(codec), size));
  }
  return out;
}

}  // namespace tilewright::columnar
