// The schema of a Parquet file: its leaves, which are the columns that hold values.
// Source: parquet.thrift and LogicalTypes.md of the Parquet format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/columnar/column.h"
#include "worker/columnar/thrift.h"

namespace tilewright::columnar {

// The numbers of parquet.thrift, Type.
enum class Physical : std::int32_t {
  kBoolean = 0,
  kInt32 = 1,
  kInt64 = 2,
  kInt96 = 3,
  kFloat = 4,
  kDouble = 5,
  kByteArray = 6,
  kFixedLenByteArray = 7,
};

struct Leaf {
  std::string name;         // without the groups that only express a list: "answers.text"
  std::string path;         // with all groups: "answers.text.list.element"
  std::string unsupported;  // its type, if values of it cannot be read; else empty
  Physical physical = Physical::kByteArray;
  ValueType type = ValueType::kString;
  bool unsigned_int32 = false;
  // Definition level of a value, and repetition level of a value that continues a list: 0 or 1.
  unsigned max_definition = 0;
  unsigned max_repetition = 0;
  // The least definition level of an element of the list; one less means an empty list, still
  // lower levels a null list.
  unsigned list_definition = 0;
};

// Reads the list of SchemaElements, the schema tree in preorder.
std::vector<Leaf> read_schema(ThriftReader& reader, const ThriftField& field);

}  // namespace tilewright::columnar
