#include "worker/columnar/parquet_chunk.h"

#include <fmt/format.h>
#include <zlib.h>

#include <array>
#include <climits>
#include <optional>
#include <utility>

#include "common/base/printable.h"
#include "worker/columnar/rle.h"
#include "worker/text/utf8.h"

namespace tilewright::columnar {
namespace {

// The numbers of parquet.thrift.
enum class PageType : std::int64_t { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
enum class Encoding : std::int64_t {
  kPlain = 0,
  kPlainDictionary = 2,
  kRle = 3,
  kBitPacked = 4,
  kRleDictionary = 8,
};

std::string encoding_name(Encoding encoding) {
  constexpr std::array<std::string_view, 10> kNames = {
      "PLAIN",          "GROUP_VAR_INT",       "PLAIN_DICTIONARY",        "RLE",
      "BIT_PACKED",     "DELTA_BINARY_PACKED", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY",
      "RLE_DICTIONARY", "BYTE_STREAM_SPLIT"};
  const auto number = static_cast<std::size_t>(encoding);
  return number < kNames.size() ? std::string(kNames[number])
                                : fmt::format("number {}", static_cast<std::int64_t>(encoding));
}

struct PageHeader {
  std::optional<PageType> type;
  std::int64_t uncompressed_bytes = -1;
  std::int64_t compressed_bytes = -1;
  std::optional<std::uint32_t> crc;  // of the compressed bytes, by zlib's crc32()
  // Of the header of the page's type:
  bool has_details = false;
  std::int64_t values = -1;
  std::optional<Encoding> encoding;
  Encoding definition_encoding = Encoding::kRle;  // version 2 has no other
  Encoding repetition_encoding = Encoding::kRle;
  std::int64_t definition_bytes = 0;  // version 2
  std::int64_t repetition_bytes = 0;
  bool is_compressed = true;
};

PageHeader read_page_header(ThriftReader& reader) {
  PageHeader page;
  const auto details = [&](const ThriftField& of, auto&& read) {
    page.has_details = true;
    reader.structure(of, [&](const ThriftField& field) {
      if (field.id == 1) {
        page.values = reader.integer(field);
      } else {
        read(field);
      }
    });
  };
  const auto encoding = [&](const ThriftField& field) {
    return static_cast<Encoding>(reader.integer(field));
  };
  reader.read_struct([&](const ThriftField& of) {
    switch (of.id) {
      case 1:
        page.type = static_cast<PageType>(reader.integer(of));
        break;
      case 2:
        page.uncompressed_bytes = reader.integer(of);
        break;
      case 3:
        page.compressed_bytes = reader.integer(of);
        break;
      case 4:
        page.crc = static_cast<std::uint32_t>(reader.integer(of));
        break;
      case 5:  // DataPageHeader
        details(of, [&](const ThriftField& field) {
          if (field.id == 2) {
            page.encoding = encoding(field);
          } else if (field.id == 3) {
            page.definition_encoding = encoding(field);
          } else if (field.id == 4) {
            page.repetition_encoding = encoding(field);
          } else {
            reader.skip(field);
          }
        });
        break;
      case 7:  // DictionaryPageHeader
        details(of, [&](const ThriftField& field) {
          if (field.id == 2) {
            page.encoding = encoding(field);
          } else {
            reader.skip(field);
          }
        });
        break;
      case 8:  // DataPageHeaderV2
        details(of, [&](const ThriftField& field) {
          if (field.id == 4) {
            page.encoding = encoding(field);
          } else if (field.id == 5) {
            page.definition_bytes = reader.integer(field);
          } else if (field.id == 6) {
            page.repetition_bytes = reader.integer(field);
          } else if (field.id == 7) {
            page.is_compressed = reader.boolean(field);
          } else {
            reader.skip(field);
          }
        });
        break;
      default:
        reader.skip(of);
    }
  });
  if (!page.type || !page.has_details || !page.encoding || page.values < 0 ||
      page.compressed_bytes < 0 || page.uncompressed_bytes < 0 || page.definition_bytes < 0 ||
      page.repetition_bytes < 0) {
    // Index pages have none of these fields but the sizes.
    if (page.type != PageType::kIndex || page.compressed_bytes < 0) {
      reader.location().fail("the page header is incomplete or has negative sizes");
    }
  }
  return page;
}

// Values in the encoding PLAIN.
class PlainValues {
 public:
  PlainValues(Bytes bytes, const Leaf& leaf, const Location& location)
      : bytes_(bytes, location), leaf_(leaf) {}

  void append(std::size_t count, Column& out, const Column::Limit& limit) {
    switch (leaf_.physical) {
      case Physical::kBoolean:
        return append_booleans(count, out, limit);
      case Physical::kInt32:
        if (leaf_.unsigned_int32) return append_integers<std::uint32_t>(count, out, limit);
        return append_integers<std::int32_t>(count, out, limit);
      case Physical::kInt64:
        return append_integers<std::int64_t>(count, out, limit);
      case Physical::kFloat:
        return append_reals<float>(count, out, limit);
      case Physical::kDouble:
        return append_reals<double>(count, out, limit);
      case Physical::kByteArray:
        for (; count > 0; --count) append_string(out, limit);
        return;
      case Physical::kInt96:
      case Physical::kFixedLenByteArray:
        break;
    }
    TW_CHECK(false, "column {} has a type that read_schema() refuses", leaf_.name);
  }

 private:
  template <typename Value>
  void append_integers(std::size_t count, Column& out, const Column::Limit& limit) {
    const Bytes taken = bytes_.take(std::uint64_t{count} * sizeof(Value), "values");
    for (std::size_t i = 0; i < count; ++i) {
      out.add_integer(load<Value>(taken, i * sizeof(Value)), limit);
    }
  }
  template <typename Value>
  void append_reals(std::size_t count, Column& out, const Column::Limit& limit) {
    const Bytes taken = bytes_.take(std::uint64_t{count} * sizeof(Value), "values");
    for (std::size_t i = 0; i < count; ++i) {
      out.add_real(load<Value>(taken, i * sizeof(Value)), limit);
    }
  }
  // One bit each, the lowest bit of a byte first.
  void append_booleans(std::size_t count, Column& out, const Column::Limit& limit) {
    for (; count > 0; --count) {
      if (bits_left_ == 0) {
        bits_ = bytes_.read<std::uint8_t>("values");
        bits_left_ = 8;
      }
      out.add_integer(bits_ & 1u, limit);
      bits_ = static_cast<std::uint8_t>(bits_ >> 1);
      --bits_left_;
    }
  }
  void append_string(Column& out, const Column::Limit& limit) {
    const auto size = bytes_.read<std::uint32_t>("the length of a string");
    const std::string_view string = as_text(bytes_.take(size, "a string"));
    if (const auto bad = text::find_invalid_utf8(string)) {
      limit.location.fail(
          fmt::format("byte {} of string {} is not valid UTF-8, expected text in UTF-8", *bad + 1,
                      quoted_excerpt(string, kLineExcerpt)));
    }
    out.add_string(string, limit);
  }

  ByteReader bytes_;
  const Leaf& leaf_;
  std::uint8_t bits_ = 0;
  unsigned bits_left_ = 0;
};

constexpr std::size_t kBatch = 1024;  // levels or indices that are decoded at a time

// The values of a data page.
class PageValues {
 public:
  PageValues(Encoding encoding, Bytes bytes, const Leaf& leaf, const Column* dictionary,
             const Location& location)
      : plain_(encoding == Encoding::kPlain ? bytes : Bytes{}, leaf, location) {
    if (encoding == Encoding::kPlain) return;
    ByteReader reader(bytes, location);
    if (encoding == Encoding::kRle && leaf.physical == Physical::kBoolean) {
      const auto size = reader.read<std::uint32_t>("the length of the values");
      coded_.emplace(reader.take(size, "values"), 1, location);
      return;
    }
    if (encoding != Encoding::kPlainDictionary && encoding != Encoding::kRleDictionary) {
      location.fail(
          fmt::format("found the encoding {}, expected PLAIN, PLAIN_DICTIONARY, "
                      "RLE_DICTIONARY, or RLE for booleans",
                      encoding_name(encoding)));
    }
    if (dictionary == nullptr) location.fail("the dictionary is missing");
    dictionary_ = dictionary;
    if (bytes.empty()) return;  // a page of nulls
    const auto width = reader.read<std::uint8_t>("the bit width of the indices");
    if (width > 32) {
      location.fail(fmt::format("indices have {} bits, expected at most 32", width));
    }
    coded_.emplace(reader.take(reader.left(), "indices"), width, location);
  }

  void append(std::size_t count, Column& out, const Column::Limit& limit) {
    if (!coded_ && dictionary_ == nullptr) return plain_.append(count, out, limit);
    if (!coded_ && count > 0) limit.location.fail("the indices are missing");
    std::array<std::uint32_t, kBatch> codes;
    while (count > 0) {
      const auto batch = std::span(codes).first(std::min(count, kBatch));
      coded_->read(batch);
      for (const std::uint32_t code : batch) {
        if (dictionary_ == nullptr) {
          out.add_integer(code, limit);
          continue;
        }
        if (code >= dictionary_->values()) {
          limit.location.fail(fmt::format("found index {} into a dictionary of {} values", code,
                                          dictionary_->values()));
        }
        out.add_value_of(*dictionary_, code, limit);
      }
      count -= batch.size();
    }
  }

 private:
  PlainValues plain_;
  const Column* dictionary_ = nullptr;
  std::optional<RleDecoder> coded_;  // indices or booleans
};

class ChunkReader {
 public:
  ChunkReader(const ColumnChunk& chunk, const Leaf& leaf, Decompressor& decompressor,
              Budget& budget, Column& out)
      : chunk_(chunk), leaf_(leaf), decompressor_(decompressor), budget_(budget), out_(out) {}

  void read(Bytes pages, std::size_t offset, const Location& location) {
    ByteReader bytes(pages, location);
    left_ = static_cast<std::uint64_t>(chunk_.values);
    while (left_ > 0) {
      const std::size_t begin = bytes.position();
      const Location page = location.at(fmt::format("page at byte {}", offset + begin));
      ThriftReader reader(pages.subspan(begin), page);
      const PageHeader header = read_page_header(reader);
      bytes.take(reader.position(), "a page header");
      if (static_cast<std::uint64_t>(header.compressed_bytes) > bytes.left()) {
        page.fail(fmt::format("has {} bytes, expected at most the {} that are left of the column",
                              header.compressed_bytes, bytes.left()));
      }
      read_page(header, bytes.take(static_cast<std::uint64_t>(header.compressed_bytes), "a page"),
                page);
    }
  }

 private:
  void read_page(const PageHeader& header, Bytes content, const Location& location) {
    if (header.crc) {
      const auto crc = crc32_z(0, reinterpret_cast<const Bytef*>(content.data()), content.size());
      if (crc != *header.crc) {
        location.fail(fmt::format("has the CRC {:08x}, expected {:08x}", crc, *header.crc));
      }
    }
    const auto uncompressed = static_cast<std::uint64_t>(header.uncompressed_bytes);
    switch (*header.type) {
      case PageType::kIndex:
        return;
      case PageType::kDictionary:
        return read_dictionary(
            header, decompressor_.decompress(chunk_.codec, content, uncompressed, location),
            location);
      case PageType::kData:
        check_count(header, location);
        return read_data(header,
                         decompressor_.decompress(chunk_.codec, content, uncompressed, location),
                         location);
      case PageType::kDataV2:
        check_count(header, location);
        return read_data_v2(header, content, location);
    }
    location.fail(
        fmt::format("has type {}, expected 0 to 3", static_cast<std::int64_t>(*header.type)));
  }

  void check_count(const PageHeader& header, const Location& location) const {
    if (static_cast<std::uint64_t>(header.values) > left_) {
      location.fail(
          fmt::format("has {} values, expected at most the {} that are left of the column",
                      header.values, left_));
    }
  }

  void read_dictionary(const PageHeader& header, Bytes content, const Location& location) {
    if (dictionary_) location.fail("is a second dictionary of the column");
    if (std::cmp_greater(header.values, content.size() * CHAR_BIT)) {  // a value has a bit or more
      location.fail(fmt::format("has {} values in {} bytes", header.values, content.size()));
    }
    if (*header.encoding != Encoding::kPlain && *header.encoding != Encoding::kPlainDictionary) {
      location.fail(fmt::format("found a dictionary in the encoding {}, expected PLAIN",
                                encoding_name(*header.encoding)));
    }
    dictionary_.emplace(leaf_.name, leaf_.type, false);
    PlainValues(content, leaf_, location)
        .append(static_cast<std::size_t>(header.values), *dictionary_, {budget_, location});
  }

  void read_data(const PageHeader& header, Bytes content, const Location& location) {
    ByteReader bytes(content, location);
    const auto levels = [&](unsigned most, Encoding encoding) {
      if (most == 0) return Bytes{};
      if (encoding != Encoding::kRle) {
        location.fail(
            fmt::format("found levels in the encoding {}, expected RLE", encoding_name(encoding)));
      }
      return bytes.take(bytes.read<std::uint32_t>("the length of the levels"), "levels");
    };
    const Bytes repetition = levels(leaf_.max_repetition, header.repetition_encoding);
    const Bytes definition = levels(leaf_.max_definition, header.definition_encoding);
    append(header, repetition, definition, bytes.take(bytes.left(), "values"), location);
  }

  // The levels of version 2 are outside the compressed part and have their lengths in the header.
  void read_data_v2(const PageHeader& header, Bytes content, const Location& location) {
    ByteReader bytes(content, location);
    const Bytes repetition =
        bytes.take(static_cast<std::uint64_t>(header.repetition_bytes), "repetition levels");
    const Bytes definition =
        bytes.take(static_cast<std::uint64_t>(header.definition_bytes), "definition levels");
    const std::uint64_t levels = repetition.size() + definition.size();
    const auto total = static_cast<std::uint64_t>(header.uncompressed_bytes);
    if (total < levels) {
      location.fail(fmt::format("has {} uncompressed bytes, expected at least the {} of its levels",
                                total, levels));
    }
    const Bytes values = bytes.take(bytes.left(), "values");
    const Codec codec = header.is_compressed ? chunk_.codec : Codec::kUncompressed;
    append(header, repetition, definition,
           decompressor_.decompress(codec, values, total - levels, location), location);
  }

  // Combines levels with values to rows, one batch at a time: a run of levels takes few bytes
  // however long it is.
  void append(const PageHeader& header, Bytes repetition, Bytes definition, Bytes values,
              const Location& location) {
    RleDecoder repetitions(repetition, std::bit_width(leaf_.max_repetition), location);
    RleDecoder definitions(definition, std::bit_width(leaf_.max_definition), location);
    PageValues source(*header.encoding, values, leaf_, dictionary_ ? &*dictionary_ : nullptr,
                      location);
    std::array<std::uint32_t, kBatch> repetition_levels;
    std::array<std::uint32_t, kBatch> definition_levels;
    auto count = static_cast<std::uint64_t>(header.values);
    left_ -= count;
    while (count > 0) {
      const std::size_t batch = std::min<std::uint64_t>(count, kBatch);
      const auto r = std::span(repetition_levels).first(batch);
      const auto d = std::span(definition_levels).first(batch);
      repetitions.read(r);
      definitions.read(d);
      for (const std::uint32_t level : d) {
        if (level > leaf_.max_definition) {
          location.fail(fmt::format("found definition level {}, expected at most {}", level,
                                    leaf_.max_definition));
        }
      }
      const Column::Limit limit{budget_, location};
      if (leaf_.max_repetition > 0) {
        append_lists(r, d, source, limit);
      } else {
        append_values(d, source, limit);
      }
      count -= batch;
    }
  }

  void append_values(std::span<const std::uint32_t> definitions, PageValues& source,
                     const Column::Limit& limit) {
    for (std::size_t begin = 0; begin < definitions.size();) {
      if (definitions[begin] < leaf_.max_definition) {
        out_.add_null_row(limit);
        ++begin;
        continue;
      }
      std::size_t end = begin + 1;
      while (end < definitions.size() && definitions[end] == leaf_.max_definition) ++end;
      source.append(end - begin, out_, limit);
      out_.add_rows(end - begin, limit);
      begin = end;
    }
  }

  void append_lists(std::span<const std::uint32_t> repetitions,
                    std::span<const std::uint32_t> definitions, PageValues& source,
                    const Column::Limit& limit) {
    std::size_t values = 0;
    for (std::size_t i = 0; i < definitions.size(); ++i) {
      const bool element = definitions[i] >= leaf_.list_definition;
      if (repetitions[i] == 0) {
        out_.begin_list(definitions[i] + 1 >= leaf_.list_definition, limit);
        in_list_ = element;
        if (!element) continue;
      } else if (!in_list_ || !element) {
        limit.location.fail("found repetition level 1 outside a list");
      }
      if (definitions[i] < leaf_.max_definition) {
        limit.location.fail(fmt::format(
            "row {} is a list that contains a null, expected none in lists", out_.rows()));
      }
      out_.extend_list(1);
      ++values;
    }
    source.append(values, out_, limit);
  }

  const ColumnChunk& chunk_;
  const Leaf& leaf_;
  Decompressor& decompressor_;
  Budget& budget_;
  Column& out_;
  std::uint64_t left_ = 0;  // levels of the chunk that have not been read
  std::optional<Column> dictionary_;
  bool in_list_ = false;  // the last row is a list that has values
};

}  // namespace

void read_chunk(const ColumnChunk& chunk, const Leaf& leaf, std::size_t rows, Bytes pages,
                std::size_t offset, Decompressor& decompressor, Budget& budget,
                const Location& location, Column& out) {
  const std::size_t before = out.rows();
  ChunkReader(chunk, leaf, decompressor, budget, out).read(pages, offset, location);
  if (out.rows() - before != rows) {
    location.fail(
        fmt::format("found {} rows in a row group, expected {}", out.rows() - before, rows));
  }
}

}  // namespace tilewright::columnar
