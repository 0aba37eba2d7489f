#include "worker/columnar/flatbuffer.h"

#include <fmt/format.h>

namespace tilewright::columnar {
namespace {

[[noreturn]] void fail_outside(std::size_t at, Bytes bytes, const Location& location) {
  location.fail(
      fmt::format("the metadata has an offset {}, expected one in its {} bytes", at, bytes.size()));
}

void check(Bytes bytes, std::size_t at, std::uint64_t size, const Location& location) {
  if (at > bytes.size() || size > bytes.size() - at) fail_outside(at, bytes, location);
}

}  // namespace

// An offset is an unsigned 32-bit distance from its own position.
std::size_t FlatTable::follow(Bytes bytes, std::size_t at, const Location& location) {
  check(bytes, at, sizeof(std::uint32_t), location);
  return at + load<std::uint32_t>(bytes, at);
}

FlatTable::FlatTable(Bytes bytes, const Location& location)
    : FlatTable(bytes, follow(bytes, 0, location), location) {}

// A table begins with the signed distance back to its vtable, which has its own size, the size of
// the table, and the offset of each field in the table or 0.
FlatTable::FlatTable(Bytes bytes, std::size_t position, const Location& location)
    : bytes_(bytes), position_(position), location_(&location) {
  check(bytes, position, sizeof(std::int32_t), location);
  const std::int64_t vtable =
      static_cast<std::int64_t>(position) - load<std::int32_t>(bytes, position);
  if (vtable < 0) fail_outside(position, bytes, location);
  vtable_ = static_cast<std::size_t>(vtable);
  check(bytes, vtable_, 2 * sizeof(std::uint16_t), location);
  vtable_bytes_ = load<std::uint16_t>(bytes, vtable_);
  table_bytes_ = load<std::uint16_t>(bytes, vtable_ + sizeof(std::uint16_t));
  check(bytes, vtable_, vtable_bytes_, location);
  check(bytes, position_, table_bytes_, location);
}

std::size_t FlatTable::find(unsigned field, std::size_t size) const {
  const std::size_t entry = (2 + field) * sizeof(std::uint16_t);
  if (entry + sizeof(std::uint16_t) > vtable_bytes_) return 0;
  const auto offset = load<std::uint16_t>(bytes_, vtable_ + entry);
  if (offset == 0) return 0;
  if (offset + size > table_bytes_) fail_outside(offset, bytes_, *location_);
  return position_ + offset;
}

std::optional<FlatTable> FlatTable::table(unsigned field) const {
  const std::size_t at = find(field, sizeof(std::uint32_t));
  if (at == 0) return std::nullopt;
  return FlatTable(bytes_, follow(bytes_, at, *location_), *location_);
}

FlatVector FlatTable::vector(unsigned field, std::size_t element_bytes) const {
  const std::size_t at = find(field, sizeof(std::uint32_t));
  if (at == 0) return {bytes_, 0, 0, element_bytes, *location_};
  const std::size_t begin = follow(bytes_, at, *location_);
  check(bytes_, begin, sizeof(std::uint32_t), *location_);
  const auto size = load<std::uint32_t>(bytes_, begin);
  check(bytes_, begin + sizeof size, std::uint64_t{size} * element_bytes, *location_);
  return {bytes_, begin + sizeof size, size, element_bytes, *location_};
}

FlatVector FlatTable::tables(unsigned field) const { return vector(field, sizeof(std::uint32_t)); }

std::string_view FlatTable::string(unsigned field) const {
  const FlatVector text = vector(field, 1);
  return as_text(bytes_.subspan(text.begin_, text.size_));
}

FlatTable FlatVector::table(std::size_t i) const {
  return FlatTable(bytes_, FlatTable::follow(bytes_, begin_ + i * element_bytes_, *location_),
                   *location_);
}

}  // namespace tilewright::columnar
