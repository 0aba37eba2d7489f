#include "worker/columnar/thrift.h"

#include <fmt/format.h>

namespace tilewright::columnar {
namespace {

constexpr std::string_view kWhat = "the metadata";

std::int64_t from_zigzag(std::uint64_t value) {
  return static_cast<std::int64_t>(value >> 1 ^ (0 - (value & 1)));
}

}  // namespace

void ThriftReader::enter() {
  if (++depth_ > kMaxDepth) {
    location().fail(fmt::format("the metadata nests deeper than {} levels", kMaxDepth));
  }
}

// A field header is a byte with the distance to the last id and the type, or with distance 0 and
// the id after it.
bool ThriftReader::next_field(ThriftField& field) {
  const auto byte = bytes_.read<std::uint8_t>(kWhat);
  field.type = static_cast<ThriftType>(byte & 0x0fu);
  if (field.type == ThriftType::kStop) return false;
  if (field.type > ThriftType::kStruct) {
    location().fail(fmt::format("the metadata has a field of type {}, expected 1 to 12",
                                static_cast<int>(field.type)));
  }
  const std::int64_t id =
      byte >> 4 != 0 ? field.id + (byte >> 4) : from_zigzag(bytes_.varint(kWhat));
  if (id < 0 || id > INT16_MAX) {
    location().fail(fmt::format("the metadata has a field with number {}", id));
  }
  field.id = static_cast<std::int32_t>(id);
  return true;
}

void ThriftReader::expect(const ThriftField& field, ThriftType type) const {
  if (field.type == type) return;
  location().fail(fmt::format("field {} of the metadata has type {}, expected {}", field.id,
                              static_cast<int>(field.type), static_cast<int>(type)));
}

bool ThriftReader::boolean(const ThriftField& field) {
  if (field.type != ThriftType::kFalse) expect(field, ThriftType::kTrue);
  return field.type == ThriftType::kTrue;
}

std::int64_t ThriftReader::integer(const ThriftField& field) {
  if (field.type == ThriftType::kByte) return bytes_.read<std::int8_t>(kWhat);
  const bool wide = field.type == ThriftType::kI64;
  if (!wide && field.type != ThriftType::kI16) expect(field, ThriftType::kI32);
  const std::int64_t value = from_zigzag(bytes_.varint(kWhat));
  if (!wide && (value < INT32_MIN || value > INT32_MAX)) {
    location().fail(fmt::format("field {} of the metadata is {}, expected an integer of 32 bits",
                                field.id, value));
  }
  return value;
}

std::string_view ThriftReader::binary(const ThriftField& field) {
  expect(field, ThriftType::kBinary);
  return binary_element();
}

std::string_view ThriftReader::binary_element() {
  return as_text(bytes_.take(bytes_.varint(kWhat), kWhat));
}

// A list header is a byte with the number of elements, or 15 and the number after it, and the type.
std::uint64_t ThriftReader::list_header(const ThriftField& field, ThriftType elements,
                                        std::uint64_t most) {
  const auto byte = bytes_.read<std::uint8_t>(kWhat);
  const std::uint64_t size = byte >> 4 == 15 ? bytes_.varint(kWhat) : byte >> 4;
  if (size > bytes_.left() || size > most) {
    location().fail(
        fmt::format("field {} of the metadata is a list of {} elements, expected at "
                    "most {}",
                    field.id, size, std::min<std::uint64_t>(bytes_.left(), most)));
  }
  const auto type = static_cast<ThriftType>(byte & 0x0fu);
  if (size > 0 && type != elements) {
    location().fail(fmt::format("field {} of the metadata is a list of type {}, expected {}",
                                field.id, static_cast<int>(type), static_cast<int>(elements)));
  }
  return size;
}

void ThriftReader::skip(const ThriftField& field) { skip_value(field.type, false); }

// A boolean's value is in its field header, but in a collection it takes a byte.
void ThriftReader::skip_value(ThriftType type, bool in_collection) {
  switch (type) {
    case ThriftType::kTrue:
    case ThriftType::kFalse:
      if (in_collection) bytes_.take(1, kWhat);
      return;
    case ThriftType::kByte:
      bytes_.take(1, kWhat);
      return;
    case ThriftType::kI16:
    case ThriftType::kI32:
    case ThriftType::kI64:
      bytes_.varint(kWhat);
      return;
    case ThriftType::kDouble:
      bytes_.take(8, kWhat);
      return;
    case ThriftType::kBinary:
      binary_element();
      return;
    case ThriftType::kList:
    case ThriftType::kSet: {
      enter();
      const auto byte = bytes_.read<std::uint8_t>(kWhat);
      std::uint64_t left = byte >> 4 == 15 ? bytes_.varint(kWhat) : byte >> 4;
      for (; left > 0; --left) skip_value(static_cast<ThriftType>(byte & 0x0fu), true);
      --depth_;
      return;
    }
    case ThriftType::kMap: {
      enter();
      std::uint64_t left = bytes_.varint(kWhat);
      const auto types = left > 0 ? bytes_.read<std::uint8_t>(kWhat) : std::uint8_t{0};
      for (; left > 0; --left) {
        skip_value(static_cast<ThriftType>(types >> 4), true);
        skip_value(static_cast<ThriftType>(types & 0x0fu), true);
      }
      --depth_;
      return;
    }
    case ThriftType::kStruct:
      read_struct([&](const ThriftField& field) { skip(field); });
      return;
    case ThriftType::kStop:
      break;
  }
  location().fail(
      fmt::format("the metadata has a value of type {}, expected 1 to 12", static_cast<int>(type)));
}

}  // namespace tilewright::columnar
