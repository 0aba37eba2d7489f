// The footer of a Parquet file: schema, row groups, where the pages of each column are.
#pragma once

#include <cstdint>
#include <vector>

#include "worker/columnar/codec.h"
#include "worker/columnar/parquet_schema.h"
#include "worker/columnar/table.h"

namespace tilewright::columnar {

// The numbers in the file, not yet checked.
struct ColumnChunk {
  std::string_view unsupported;  // why it cannot be read, a literal; else empty
  Physical physical = Physical::kByteArray;
  Codec codec = Codec::kUncompressed;
  std::int64_t values = 0;
  std::int64_t compressed_bytes = 0;
  std::int64_t data_page_offset = 0;
  std::int64_t dictionary_page_offset = 0;  // 0: there is none
};

struct RowGroup {
  std::int64_t rows = 0;
  std::vector<ColumnChunk> chunks;  // one for each leaf
};

struct ParquetMetadata {
  std::int64_t rows = 0;
  std::vector<Leaf> leaves;
  std::vector<RowGroup> row_groups;
  std::size_t footer_offset = 0;  // the end of the pages
};

// Longer footers are refused; those of the GLUE and SQuAD files have less than 100 kB.
inline constexpr std::uint32_t kMaxFooterBytes = 16u << 20;

ParquetMetadata read_parquet_metadata(Bytes content, const Location& location);

}  // namespace tilewright::columnar
