#include "common/tcpstore/protocol.h"

#include <gmock/gmock.h>

#include "tests/support/tcpstore_request.h"

namespace tilewright::tcpstore {
namespace {

using tilewright::testing::encode;
using tilewright::testing::little_endian;

std::string error_of(std::string_view bytes) {
  RequestReader reader;
  reader.append(bytes);
  const auto request = reader.next();
  return request.ok() ? "no error" : request.error().message;
}

const Request kRequests[] = {
    {.operation = Operation::kValidate, .number = kMagic},
    {.operation = Operation::kSet, .keys = {"/key"}, .values = {"value"}},
    {.operation = Operation::kCompareSet, .keys = {"/key"}, .values = {"", "desired"}},
    {.operation = Operation::kGet, .keys = {""}},
    {.operation = Operation::kAdd, .keys = {"/key"}, .number = -5},
    {.operation = Operation::kCheck, .keys = {"/a", "/b"}},
    {.operation = Operation::kWait, .keys = {}},
    {.operation = Operation::kGetNumKeys},
    {.operation = Operation::kDeleteKey, .keys = {"/key"}},
    {.operation = Operation::kAppend, .keys = {"/key"}, .values = {std::string(3000, 'x')}},
    {.operation = Operation::kMultiGet, .keys = {"/a"}},
    {.operation = Operation::kMultiSet, .keys = {"/a", "/b"}, .values = {"1", "2"}},
    {.operation = Operation::kCancelWait},
    {.operation = Operation::kPing, .number = 0xFFFFFFFF},
    {.operation = Operation::kQueuePush, .keys = {"/q"}, .values = {"item"}},
    {.operation = Operation::kQueuePop, .keys = {"/q"}},
    {.operation = Operation::kQueueLen, .keys = {"/q"}},
    {.operation = Operation::kListKeys},
    {.operation = Operation::kBarrier, .keys = {"/b"}, .number = 4},
};

TEST(TcpStoreRequests, AreReadAsTheyWereWrittenHoweverTheyArrive) {
  std::string stream;
  for (const Request& request : kRequests) stream += encode(request);
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, stream.size()}) {
    RequestReader reader;
    std::vector<Request> read;
    std::size_t bytes = 0;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.append(std::string_view(stream).substr(at, piece));
      while (true) {
        auto request = reader.next();
        ASSERT_TRUE(request.ok()) << request.error().message;
        if (!request->has_value()) break;
        bytes += std::exchange((*request)->bytes, 0);
        read.push_back(**request);
      }
    }
    EXPECT_EQ(bytes, stream.size());
    EXPECT_EQ(read, std::vector<Request>(std::begin(kRequests), std::end(kRequests)));
  }
}

TEST(TcpStoreRequests, NameAnUnknownOperation) {
  EXPECT_EQ(error_of("\x13"), "operation 19, expected 0 to 18");
}

// Before the bytes have arrived, so that no memory is reserved for them.
TEST(TcpStoreRequests, BoundKeysAndValues) {
  EXPECT_EQ(error_of("\x03" + little_endian(kMaxKeyBytes + 1)),
            "a key of 8193 bytes in GET, expected at most 8192");
  EXPECT_EQ(error_of("\x01" + little_endian(1) + "k" + little_endian(~std::uint64_t{0})),
            "a value of 18446744073709551615 bytes in SET, expected at most 8388608");
  EXPECT_EQ(error_of("\x06" + little_endian(kMaxKeys + 1)),
            "131073 keys in WAIT, expected at most 131072");
  EXPECT_EQ(error_of("\x03" + little_endian(kMaxKeyBytes)), "no error");
}

TEST(TcpStoreRequests, BoundTheWholeRequest) {
  RequestReader reader;
  reader.append("\x0b" + little_endian(3));
  const std::string pair =
      little_endian(1) + "k" + little_endian(kMaxValueBytes) + std::string(kMaxValueBytes, 'v');
  reader.append(pair);
  EXPECT_FALSE(reader.next().value().has_value());
  reader.append(pair);
  const auto request = reader.next();
  ASSERT_FALSE(request.ok());
  EXPECT_EQ(request.error().message, "MULTI_SET of more than 16777216 bytes");
}

TEST(TcpStoreRequests, CountTheMemoryOfAnUnfinishedRequest) {
  RequestReader reader;
  reader.append("\x05" + little_endian(1000));
  for (int i = 0; i < 999; ++i) {
    reader.append(little_endian(100) + std::string(100, 'k'));
    ASSERT_FALSE(reader.next().value().has_value());
  }
  EXPECT_GE(reader.memory(), 999u * 100);
  reader.append(little_endian(100) + std::string(100, 'k'));
  EXPECT_EQ(reader.next().value()->keys.size(), 1000u);
  EXPECT_FALSE(reader.next().value().has_value());
  EXPECT_LT(reader.memory(), 8u << 10);
}

}  // namespace
}  // namespace tilewright::tcpstore
