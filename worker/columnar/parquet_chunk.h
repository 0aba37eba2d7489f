// Reads the pages of one column of a row group.
#pragma once

#include "worker/columnar/codec.h"
#include "worker/columnar/parquet_metadata.h"

namespace tilewright::columnar {

// Appends `rows` rows to `out`. `pages` begins at byte `offset` of the file and holds the chunk.
// Throws Failure(kData) for pages that are malformed, do not have these rows, or use an encoding
// or codec that is not supported.
void read_chunk(const ColumnChunk& chunk, const Leaf& leaf, std::size_t rows, Bytes pages,
                std::size_t offset, Decompressor& decompressor, Budget& budget,
                const Location& location, Column& out);

}  // namespace tilewright::columnar
