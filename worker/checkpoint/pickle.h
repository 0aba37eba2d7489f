// A reader of pickles that can run no code: it knows the opcodes and the globals that torch.save
// writes for a dictionary of tensors, and refuses everything else.
//
// Format: a program for a stack machine. Source: the comments of Python's Lib/pickletools.py;
// torch/serialization.py and torch/_utils.py for the globals.
//
// Bounds: all values are 16 bytes or views into the input, each opcode makes at most one,
// containers refer to their elements by index, and nothing is read recursively. A pickle of N
// opcodes therefore needs memory and time proportional to N, whatever it nests, shares or refers
// back to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "worker/checkpoint/tensor.h"

namespace tilewright::checkpoint {

// The pickle of BERT-large has 60 kB and makes 12,000 values.
inline constexpr std::size_t kMaxPickleBytes = std::size_t{16} << 20;
inline constexpr std::size_t kMaxPickleValues = std::size_t{1} << 20;

// A storage that tensors are views of: a one-dimensional array in the file.
struct PickledStorage {
  std::string_view key;
  DType dtype = DType::kF32;
  std::int64_t size = 0;  // elements
};

// A tensor before its storage is located. `offset` and `strides` are in elements; they are inside
// the storage.
struct PickledTensor {
  std::size_t storage = 0;  // index in Pickle::storages
  Shape shape;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
};

struct PickleValue {
  enum class Kind : std::uint8_t {
    kMark,
    kNone,
    kBool,
    kInteger,
    kLong,  // more than 64 bits; a string of little-endian bytes
    kFloat,
    kString,
    kList,  // or a tuple
    kDict,
    kGlobal,
    kStorage,
    kTensor
  };
  Kind kind = Kind::kNone;
  std::uint32_t index = 0;   // in the vector of this kind in Pickle
  std::int64_t integer = 0;  // a bool or an integer
};

// The values of one pickle. String views point into the input.
struct Pickle {
  using Value = PickleValue;

  Value result;
  std::size_t bytes = 0;  // length of the pickle, with its STOP
  std::vector<std::string_view> strings;
  std::vector<std::vector<Value>> lists;
  std::vector<std::vector<std::pair<Value, Value>>> dicts;
  std::vector<PickledStorage> storages;
  std::vector<PickledTensor> tensors;

  const std::string_view* string(const Value& value) const;  // nullptr: another kind
  const std::vector<Value>* list(const Value& value) const;
  const std::vector<std::pair<Value, Value>>* dict(const Value& value) const;
};

// Reads the pickle at the beginning of `content`; more bytes may follow. Throws Failure with
// `code`; the message names `path` and, for a refused global, the global.
Pickle read_pickle(std::span<const std::byte> content, const std::filesystem::path& path,
                   ExitCode code);

}  // namespace tilewright::checkpoint
