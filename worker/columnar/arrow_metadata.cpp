#include "worker/columnar/arrow_metadata.h"

#include <fmt/format.h>

#include <array>

#include "common/base/printable.h"

namespace tilewright::columnar {
namespace {

constexpr std::uint32_t kContinuation = 0xffffffff;
constexpr std::int16_t kOldestVersion = 3;  // V4: Arrow 0.8 of 2017
constexpr std::int16_t kNewestVersion = 4;  // V5
constexpr std::size_t kMaxFields = 4096;
constexpr std::size_t kMaxName = 1024;

// The numbers of Schema.fbs, Type, where they have a layout of their own here.
enum Type : std::uint8_t {
  kNullType = 1,
  kInt = 2,
  kFloatingPoint = 3,
  kUtf8 = 5,
  kBool = 6,
  kListType = 12,
  kStructType = 13,
  kLargeUtf8 = 20,
  kLargeList = 21,
};

struct TypeRow {
  std::string_view name;
  ArrowKind kind;
  unsigned buffers = 0;  // kOpaque
  unsigned bytes = 0;
};
constexpr std::array<TypeRow, 27> kTypes = {{
    {"no type", ArrowKind::kUnknown},
    {"the null type", ArrowKind::kNull},
    {"an integer", ArrowKind::kInteger},
    {"a floating-point number", ArrowKind::kReal},
    {"binary", ArrowKind::kOpaque, 3},
    {"a string", ArrowKind::kString, 0, 4},
    {"a boolean", ArrowKind::kBoolean},
    {"a decimal", ArrowKind::kOpaque, 2},
    {"a date", ArrowKind::kOpaque, 2},
    {"a time", ArrowKind::kOpaque, 2},
    {"a timestamp", ArrowKind::kOpaque, 2},
    {"an interval", ArrowKind::kOpaque, 2},
    {"a list", ArrowKind::kList, 0, 4},
    {"a struct", ArrowKind::kStruct},
    {"a union", ArrowKind::kUnknown},
    {"fixed-size binary", ArrowKind::kOpaque, 2},
    {"a fixed-size list", ArrowKind::kOpaque, 1},
    {"a map", ArrowKind::kOpaque, 2},
    {"a duration", ArrowKind::kOpaque, 2},
    {"large binary", ArrowKind::kOpaque, 3},
    {"a large string", ArrowKind::kString, 0, 8},
    {"a large list", ArrowKind::kList, 0, 8},
    {"run-end encoded", ArrowKind::kOpaque, 0},
    {"a binary view", ArrowKind::kUnknown},
    {"a string view", ArrowKind::kUnknown},
    {"a list view", ArrowKind::kOpaque, 3},
    {"a large list view", ArrowKind::kOpaque, 3},
}};

void set_type(const FlatTable& table, ArrowField& field) {
  const auto number = table.scalar<std::uint8_t>(2, 0);
  if (number >= kTypes.size()) {
    field.type = fmt::format("type number {}", number);
    return;
  }
  const TypeRow& row = kTypes[number];
  field.type = row.name;
  field.kind = row.kind;
  field.buffers = row.buffers;
  field.bytes = row.bytes;
  const std::optional<FlatTable> type = table.table(3);
  if (number == kInt) {
    const std::int32_t bits = type ? type->scalar<std::int32_t>(0, 0) : 0;
    field.is_signed = type && type->scalar<std::uint8_t>(1, 0) != 0;
    field.type = fmt::format("{}int{}", field.is_signed ? "" : "u", bits);
    const bool known = bits == 8 || bits == 16 || bits == 32 || (bits == 64 && field.is_signed);
    field.bytes = known ? static_cast<unsigned>(bits) / 8 : 0;
    if (!known) {  // uint64 does not fit
      field.kind = ArrowKind::kOpaque;
      field.buffers = 2;
    }
  }
  if (number == kFloatingPoint) {
    const std::int16_t precision = type ? type->scalar<std::int16_t>(0, 0) : std::int16_t{0};
    field.bytes = precision == 1 ? 4 : 8;
    if (precision != 1 && precision != 2) {
      field.type = "a half-precision number";
      field.kind = ArrowKind::kOpaque;
      field.buffers = 2;
    }
  }
}

class SchemaReader {
 public:
  ArrowField read(const FlatTable& table, int depth) {
    const Location& location = table.location();
    if (depth > kMaxSchemaDepth)
      location.fail(fmt::format("the schema nests deeper than {}", kMaxSchemaDepth));
    // Children may share bytes, so their number is not bounded by the message's size.
    if (++fields_ > kMaxFields) {
      location.fail(fmt::format("the schema has more than {} fields", kMaxFields));
    }
    ArrowField field;
    const std::string_view name = table.string(0);
    if (name.size() > kMaxName) {
      location.fail(fmt::format("the schema has a name of more than {} bytes", kMaxName));
    }
    field.name = name;
    if (table.table(4)) {  // batches hold the indices
      field.kind = ArrowKind::kOpaque;
      field.buffers = 2;
      field.type = "a dictionary";
      return field;
    }
    set_type(table, field);
    const FlatVector children = table.tables(5);
    for (std::size_t i = 0; i < children.size(); ++i) {
      field.children.push_back(read(children.table(i), depth + 1));
    }
    if (field.kind == ArrowKind::kList && field.children.size() != 1) {
      location.fail(fmt::format("the list {} has {} children, expected 1",
                                quoted_excerpt(field.name), field.children.size()));
    }
    return field;
  }

 private:
  std::size_t fields_ = 0;
};

}  // namespace

std::optional<ArrowMessage> read_arrow_message(ByteReader& stream, const Location& location) {
  const auto marker =
      stream.read<std::uint32_t>("a message or the end-of-stream marker (is the file cut off?)");
  if (marker != kContinuation) {
    location.fail(
        fmt::format("found 0x{:08x}, expected the 0xffffffff that begins a message of an "
                    "Arrow stream",
                    marker));
  }
  const auto size = stream.read<std::uint32_t>("the size of a message");
  if (size == 0) return std::nullopt;
  if (size > kMaxArrowMetadataBytes) {
    location.fail(fmt::format("a message has {} bytes of metadata, expected at most {}", size,
                              kMaxArrowMetadataBytes));
  }
  const FlatTable message(stream.take(size, "a message"), location);
  const auto version = message.scalar<std::int16_t>(0, 0);
  if (version < kOldestVersion || version > kNewestVersion) {
    location.fail(fmt::format("a message has metadata version V{}, expected V{} or V{}",
                              version + 1, kOldestVersion + 1, kNewestVersion + 1));
  }
  const std::optional<FlatTable> header = message.table(2);
  if (!header) location.fail("a message has no header");
  const auto body = message.scalar<std::int64_t>(3, 0);
  if (body < 0) location.fail(fmt::format("a message has a body of {} bytes", body));
  return ArrowMessage{static_cast<ArrowMessageType>(message.scalar<std::uint8_t>(1, 0)), *header,
                      stream.take(static_cast<std::uint64_t>(body), "the body of a message")};
}

std::vector<ArrowField> read_arrow_schema(const FlatTable& table) {
  const Location& location = table.location();
  if (table.scalar<std::int16_t>(0, 0) != 0) {
    location.fail("the data is big-endian, expected little-endian");
  }
  std::vector<ArrowField> schema;
  SchemaReader reader;
  const FlatVector fields = table.tables(1);
  for (std::size_t i = 0; i < fields.size(); ++i) {
    schema.push_back(reader.read(fields.table(i), 1));
  }
  return schema;
}

ArrowBatch read_arrow_batch(const FlatTable& batch) {
  if (const auto compression = batch.table(3)) {
    const auto codec = compression->scalar<std::int8_t>(0, 0);
    batch.location().fail(
        fmt::format("a record batch is compressed with {}, expected no compression",
                    codec == 0   ? "LZ4_FRAME"
                    : codec == 1 ? "ZSTD"
                                 : fmt::format("codec number {}", codec)));
  }
  constexpr std::size_t kPairBytes = 2 * sizeof(std::int64_t);
  return {batch.scalar<std::int64_t>(0, 0), batch.vector(1, kPairBytes),
          batch.vector(2, kPairBytes)};
}

}  // namespace tilewright::columnar
