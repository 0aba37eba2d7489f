// The bytes of a TCPStore request, by the table in common/tcpstore/protocol.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/tcpstore/protocol.h"

namespace tilewright::testing {

inline std::string little_endian(std::uint64_t number, int bytes = 8) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(number >> (8 * i));
  return text;
}

inline std::string encode(const tcpstore::Request& request) {
  using tcpstore::Operation;
  const auto string = [](std::string_view value) {
    return little_endian(value.size()).append(value);
  };
  std::string bytes(1, static_cast<char>(request.operation));
  switch (request.operation) {
    case Operation::kCheck:
    case Operation::kWait:
    case Operation::kMultiGet:
    case Operation::kMultiSet:
      bytes += little_endian(request.keys.size());
      break;
    default:
      break;
  }
  if (request.operation == Operation::kMultiSet) {
    for (std::size_t i = 0; i < request.keys.size(); ++i) {
      bytes += string(request.keys[i]) + string(request.values.at(i));
    }
  } else {
    for (const std::string& key : request.keys) bytes += string(key);
    for (const std::string& value : request.values) bytes += string(value);
  }
  const auto number = static_cast<std::uint64_t>(request.number);
  switch (request.operation) {
    case Operation::kAdd:
    case Operation::kBarrier:
      return bytes + little_endian(number);
    case Operation::kValidate:
    case Operation::kPing:
      return bytes + little_endian(number, 4);
    default:
      return bytes;
  }
}

}  // namespace tilewright::testing
