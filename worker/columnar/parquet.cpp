#include "worker/columnar/parquet.h"

#include <fmt/format.h>

#include "common/base/mapped_file.h"
#include "common/base/printable.h"
#include "worker/columnar/parquet_chunk.h"
#include "worker/columnar/parquet_metadata.h"
#include "worker/columnar/selection.h"

namespace tilewright::columnar {
namespace {

constexpr std::int64_t kMagicBytes = 4;

// Reads a leaf from all row groups.
class LeafReader {
 public:
  LeafReader(Bytes content, const ParquetMetadata& metadata, const Location& file,
             Decompressor& decompressor, Budget& budget)
      : content_(content),
        metadata_(metadata),
        file_(file),
        decompressor_(decompressor),
        budget_(budget) {}

  Column read(std::size_t index) {
    const Leaf& leaf = metadata_.leaves[index];
    const Location location = file_.at(fmt::format("column {}", quoted_excerpt(leaf.name)));
    if (!leaf.unsupported.empty()) {
      location.fail(
          fmt::format("found {}, expected strings, integers, floating-point numbers, "
                      "booleans, or lists of them",
                      leaf.unsupported));
    }
    Column column(leaf.name, leaf.type, leaf.max_repetition > 0);
    for (const RowGroup& group : metadata_.row_groups) {
      read_group(group.chunks[index], leaf, static_cast<std::size_t>(group.rows), location, column);
    }
    return column;
  }

 private:
  void read_group(const ColumnChunk& chunk, const Leaf& leaf, std::size_t rows,
                  const Location& location, Column& column) {
    if (!chunk.unsupported.empty()) location.fail(chunk.unsupported);
    if (chunk.physical != leaf.physical) {
      location.fail(fmt::format("a row group has the type {}, expected {} as in the schema",
                                static_cast<int>(chunk.physical), static_cast<int>(leaf.physical)));
    }
    if (chunk.values < 0) location.fail(fmt::format("a row group has {} values", chunk.values));
    if (rows == 0 && chunk.values == 0) return;  // pyarrow may leave the offset of its pages 0
    const bool dictionary_first =
        chunk.dictionary_page_offset > 0 && chunk.dictionary_page_offset < chunk.data_page_offset;
    const std::int64_t begin =
        dictionary_first ? chunk.dictionary_page_offset : chunk.data_page_offset;
    const auto end = static_cast<std::int64_t>(metadata_.footer_offset);
    if (begin < kMagicBytes || begin > end || chunk.compressed_bytes < 0 ||
        chunk.compressed_bytes > end - begin) {
      location.fail(
          fmt::format("its {} bytes at byte {} are not between byte {} and the footer at "
                      "byte {}",
                      chunk.compressed_bytes, begin, kMagicBytes, end));
    }
    const auto offset = static_cast<std::size_t>(begin);
    const Bytes pages = content_.subspan(offset, static_cast<std::size_t>(chunk.compressed_bytes));
    read_chunk(chunk, leaf, rows, pages, offset, decompressor_, budget_, location, column);
  }

  Bytes content_;
  const ParquetMetadata& metadata_;
  const Location& file_;
  Decompressor& decompressor_;
  Budget& budget_;
};

}  // namespace

Table parse_parquet(Bytes content, const std::filesystem::path& path, const Selection& selection) {
  const Location location(path.string());
  const ParquetMetadata metadata = read_parquet_metadata(content, location);
  std::vector<std::string> names;
  for (const Leaf& leaf : metadata.leaves) names.push_back(leaf.name);
  const std::vector<bool> selected = select_columns(names, selection, location);
  Decompressor decompressor(content.size());
  Budget budget("the table", content.size(), kMaxTableBytes);
  LeafReader reader(content, metadata, location, decompressor, budget);
  std::vector<Column> read;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (selected[i]) read.push_back(reader.read(i));
  }
  return Table(path, static_cast<std::size_t>(metadata.rows), std::move(read));
}

Table read_parquet(const std::filesystem::path& path, const Selection& selection) {
  const MappedFile file(path, ExitCode::kData);
  Table table = parse_parquet(file.content(), path, selection);
  file.check_size();
  return table;
}

}  // namespace tilewright::columnar
