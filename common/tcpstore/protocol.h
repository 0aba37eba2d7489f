// The wire protocol of PyTorch's TCPStore. Its legacy and its libuv server speak the same one.
//
// A request is one byte, the operation, and its fields. Numbers are little-endian. A string (key or
// value) is its length (8 bytes) and its bytes. A list begins with the number of its items (8
// bytes). Replies have neither an operation nor a number: a client sends a request and reads the
// reply, so the server replies in order. The first request of a connection is VALIDATE.
//
//   operation      fields                     reply
//    0 VALIDATE    kMagic (4 bytes)           none
//    1 SET         key, value                 none
//    2 COMPARE_SET key, expected, desired     value
//    3 GET         key                        value
//    4 ADD         key, number (8 bytes)      number
//    5 CHECK       keys                       a byte: 0 all present, 1 not
//    6 WAIT        keys                       a byte 0 once all are present
//    7 GETNUMKEYS                             number
//    8 DELETE_KEY  key                        number of deleted keys
//    9 APPEND      key, value                 none
//   10 MULTI_GET   keys                       a value for each key
//   11 MULTI_SET   (key, value) pairs         none
//   12 CANCEL_WAIT                            a byte 1
//   13 PING        number (4 bytes)           the number
//   14 QUEUE_PUSH  key, value                 none
//   15 QUEUE_POP   key                        length before the pop, value if it is not 0
//   16 QUEUE_LEN   key                        number
//   17 LIST_KEYS                              list of keys
//   18 BARRIER     key, world size (8 bytes)  a byte 0 once so many clients have called
//
// WAIT and BARRIER have no deadline: a client whose timeout ends sends CANCEL_WAIT.
//
// Source: torch/csrc/distributed/c10d/TCPStore.cpp, TCPStoreBackend.hpp and
// TCPStoreLibUvBackend.cpp of PyTorch 2.15, and the bytes recorded in tests/golden/tcpstore.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"

namespace tilewright::tcpstore {

enum class Operation : std::uint8_t {
  kValidate,
  kSet,
  kCompareSet,
  kGet,
  kAdd,
  kCheck,
  kWait,
  kGetNumKeys,
  kDeleteKey,
  kAppend,
  kMultiGet,
  kMultiSet,
  kCancelWait,
  kPing,
  kQueuePush,
  kQueuePop,
  kQueueLen,
  kListKeys,
  kBarrier,
};
const char* to_string(Operation operation);

inline constexpr std::uint32_t kMagic = 0x3C85F7CE;
// The bounds of PyTorch's server.
inline constexpr std::size_t kMaxKeyBytes = 8 << 10;
inline constexpr std::size_t kMaxValueBytes = 8 << 20;
inline constexpr std::size_t kMaxKeys = 128 << 10;
// PyTorch bounds only the parts of a request.
inline constexpr std::size_t kMaxRequestBytes = 16 << 20;

struct Request {
  Operation operation = Operation::kValidate;
  // In the order of the fields. COMPARE_SET has two values: expected, desired.
  std::vector<std::string> keys = {}, values = {};
  std::int64_t number = 0;  // VALIDATE and PING use the low 32 bits
  std::size_t bytes = 0;    // of the encoded request; set by RequestReader

  bool operator==(const Request&) const = default;
};

// Splits a stream into requests: append() the bytes, then call next() until it returns nullopt.
class RequestReader {
 public:
  void append(std::string_view bytes);
  // The next complete request; nullopt if it needs more bytes. Errors carry kUsage: an unknown
  // operation, a length out of bounds; the stream is then of no use.
  Result<std::optional<Request>> next();
  // Memory of bytes and fields that next() has not returned yet.
  std::size_t memory() const { return buffer_.capacity() + request_memory_; }

 private:
  std::string_view rest() const { return std::string_view(buffer_).substr(begin_); }
  template <typename Number>
  std::optional<Number> take_number();
  // nullopt: more bytes are needed.
  Result<std::optional<std::string>> take_string(char field);
  // Reads one field; false: more bytes are needed.
  Result<bool> take_field(char field);
  void discard_taken();

  std::string buffer_;
  std::size_t begin_ = 0;
  // The request that is being read.
  std::optional<Request> request_;
  std::size_t request_memory_ = 0;
  std::optional<std::uint64_t> items_left_;  // of a list, once its length has been read
  std::size_t next_field_ = 0;
};

// Parts of replies.
inline constexpr char kReady = 0, kNotReady = 1;            // CHECK
inline constexpr char kStopWaiting = 0, kWaitCanceled = 1;  // WAIT, BARRIER; CANCEL_WAIT
inline constexpr std::size_t kLengthBytes = 8;
void append_number(std::string& reply, std::int64_t number);
void append_string(std::string& reply, std::string_view value);

}  // namespace tilewright::tcpstore
