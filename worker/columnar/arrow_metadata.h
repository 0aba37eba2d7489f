// The messages of an Arrow IPC stream.
// Source: Schema.fbs and Message.fbs of the Arrow format, metadata versions V4 and V5.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "worker/columnar/flatbuffer.h"
#include "worker/columnar/table.h"

namespace tilewright::columnar {

// How the arrays of a type are laid out in a record batch.
enum class ArrowKind {
  kNull,     // no buffers
  kBoolean,  // validity, bits
  kInteger,  // validity, values
  kReal,     // validity, values
  kString,   // validity, offsets, bytes
  kList,     // validity, offsets; one child
  kStruct,   // validity; children
  kOpaque,   // `buffers` buffers; children that are not read
  kUnknown,  // a layout that cannot be skipped
};

struct ArrowField {
  std::string name;
  ArrowKind kind = ArrowKind::kUnknown;
  std::string type;    // for messages: "a timestamp"
  unsigned bytes = 0;  // of an integer, a real, or an offset
  bool is_signed = true;
  unsigned buffers = 0;  // kOpaque
  std::vector<ArrowField> children;
};

// The numbers of Message.fbs, MessageHeader.
enum class ArrowMessageType : std::uint8_t {
  kNone = 0,
  kSchema = 1,
  kDictionaryBatch = 2,
  kRecordBatch = 3,
};

struct ArrowMessage {
  ArrowMessageType type = ArrowMessageType::kNone;
  FlatTable header;
  Bytes body;
};

// The arrays of a batch in preorder of the schema; not checked against the body.
struct ArrowBatch {
  std::int64_t rows = 0;
  FlatVector nodes;    // FieldNode: int64 length, int64 null_count
  FlatVector buffers;  // Buffer: int64 offset, int64 length
};

// Longer metadata of a message is refused. A batch of datasets' files has less than 1 kB.
inline constexpr std::uint32_t kMaxArrowMetadataBytes = 16u << 20;

// The next message; nullopt at the end-of-stream marker. `location` must outlive the message.
std::optional<ArrowMessage> read_arrow_message(ByteReader& stream, const Location& location);

std::vector<ArrowField> read_arrow_schema(const FlatTable& schema);
ArrowBatch read_arrow_batch(const FlatTable& batch);

}  // namespace tilewright::columnar
