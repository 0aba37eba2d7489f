#include "worker/columnar/parquet_metadata.h"

#include <fmt/format.h>

#include "common/base/printable.h"

namespace tilewright::columnar {
namespace {

constexpr std::uint64_t kMaxRowGroups = 1u << 16;
constexpr std::uint64_t kMaxChunks = 1u << 20;  // of all row groups

void read_column_metadata(ThriftReader& reader, const ThriftField& of, ColumnChunk& chunk) {
  reader.structure(of, [&](const ThriftField& field) {
    switch (field.id) {
      case 1:
        chunk.physical = static_cast<Physical>(reader.integer(field));
        break;
      case 4:
        chunk.codec = static_cast<Codec>(reader.integer(field));
        break;
      case 5:
        chunk.values = reader.integer(field);
        break;
      case 7:
        chunk.compressed_bytes = reader.integer(field);
        break;
      case 9:
        chunk.data_page_offset = reader.integer(field);
        break;
      case 11:
        chunk.dictionary_page_offset = reader.integer(field);
        break;
      default:
        reader.skip(field);
    }
  });
}

ColumnChunk read_column_chunk(ThriftReader& reader) {
  ColumnChunk chunk;
  bool found = false;
  reader.read_struct([&](const ThriftField& field) {
    switch (field.id) {
      case 1:
        if (!reader.binary(field).empty()) chunk.unsupported = "its data is in another file";
        break;
      case 3:
        found = true;
        read_column_metadata(reader, field, chunk);
        break;
      case 8:
      case 9:
        chunk.unsupported = "it is encrypted";
        reader.skip(field);
        break;
      default:
        reader.skip(field);
    }
  });
  if (!found && chunk.unsupported.empty()) chunk.unsupported = "its metadata is missing";
  return chunk;
}

std::string_view footer_bytes(Bytes content, const Location& location) {
  constexpr std::string_view kMagic = "PAR1";
  constexpr std::size_t kTail = 8;  // the footer's length and the magic
  const std::string_view text = as_text(content);
  if (text.starts_with("PARE"))
    location.fail("is an encrypted Parquet file, expected no encryption");
  if (!text.starts_with(kMagic)) {
    location.fail(fmt::format("begins with {}, expected the \"PAR1\" of a Parquet file",
                              quoted_excerpt(text.substr(0, kMagic.size()))));
  }
  if (text.size() < kMagic.size() + kTail || !text.ends_with(kMagic)) {
    location.fail(
        fmt::format("has {} bytes and ends without \"PAR1\" (is the file cut off?)", text.size()));
  }
  const std::size_t end = text.size() - kTail;
  const auto length = load<std::uint32_t>(content, end);
  if (length > kMaxFooterBytes || length > end - kMagic.size()) {
    location.fail(fmt::format("has a footer of {} bytes, expected at most {}", length,
                              std::min<std::size_t>(kMaxFooterBytes, end - kMagic.size())));
  }
  return text.substr(end - length, length);
}

class FooterReader {
 public:
  FooterReader(Bytes footer, const Location& location) : reader_(footer, location) {}

  ParquetMetadata read() {
    bool has_rows = false;
    reader_.read_struct([&](const ThriftField& field) {
      switch (field.id) {
        case 2:
          metadata_.leaves = read_schema(reader_, field);
          break;
        case 3:
          metadata_.rows = reader_.integer(field);
          has_rows = true;
          break;
        case 4:
          reader_.list(field, ThriftType::kStruct, kMaxRowGroups, [&] { read_row_group(); });
          break;
        case 8:
          reader_.location().fail("is an encrypted Parquet file, expected no encryption");
        default:
          reader_.skip(field);
      }
    });
    if (!has_rows) reader_.location().fail("the metadata lacks the number of rows");
    check_groups();
    return std::move(metadata_);
  }

 private:
  void read_row_group() {
    RowGroup group;
    reader_.read_struct([&](const ThriftField& field) {
      if (field.id == 1) {
        reader_.list(field, ThriftType::kStruct, kMaxChunks - chunks_, [&] {
          group.chunks.push_back(read_column_chunk(reader_));
          ++chunks_;
        });
      } else if (field.id == 3) {
        group.rows = reader_.integer(field);
      } else {
        reader_.skip(field);
      }
    });
    metadata_.row_groups.push_back(std::move(group));
  }

  void check_groups() const {
    const Location& location = reader_.location();
    std::int64_t rows = 0;
    for (const RowGroup& group : metadata_.row_groups) {
      if (group.chunks.size() != metadata_.leaves.size()) {
        location.fail(fmt::format("a row group has {} columns, expected {}", group.chunks.size(),
                                  metadata_.leaves.size()));
      }
      if (group.rows < 0 || __builtin_add_overflow(rows, group.rows, &rows)) {
        location.fail(fmt::format("a row group has {} rows", group.rows));
      }
    }
    if (rows != metadata_.rows) {
      location.fail(fmt::format("the row groups have {} rows, expected {}", rows, metadata_.rows));
    }
  }

  ThriftReader reader_;
  ParquetMetadata metadata_;
  std::uint64_t chunks_ = 0;
};

}  // namespace

ParquetMetadata read_parquet_metadata(Bytes content, const Location& location) {
  const std::string_view footer = footer_bytes(content, location);
  const Bytes bytes = std::as_bytes(std::span(footer));
  ParquetMetadata metadata = FooterReader(bytes, location).read();
  metadata.footer_offset = static_cast<std::size_t>(bytes.data() - content.data());
  return metadata;
}

}  // namespace tilewright::columnar
