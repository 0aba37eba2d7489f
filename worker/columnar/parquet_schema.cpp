#include "worker/columnar/parquet_schema.h"

#include <fmt/format.h>

#include <array>

namespace tilewright::columnar {
namespace {

constexpr std::uint64_t kMaxElements = 4096;
constexpr std::size_t kMaxPath = 1024;

enum class Repetition : std::int64_t { kRequired = 0, kOptional = 1, kRepeated = 2 };

// The fields of parquet.thrift's LogicalType, a union.
enum Logical : int {
  kNoLogicalType = 0,
  kStringLogical = 1,
  kMapLogical = 2,
  kListLogical = 3,
  kEnumLogical = 4,
  kIntegerLogical = 10,
  kJsonLogical = 12,
};
constexpr std::array<std::string_view, 19> kLogicalNames = {
    "none",    "STRING", "MAP",  "LIST", "ENUM", "DECIMAL", "DATE",    "TIME",     "TIMESTAMP", "9",
    "INTEGER", "NULL",   "JSON", "BSON", "UUID", "FLOAT16", "VARIANT", "GEOMETRY", "GEOGRAPHY"};
constexpr std::array<std::string_view, 8> kPhysicalNames = {
    "BOOLEAN", "INT32", "INT64", "INT96", "FLOAT", "DOUBLE", "BYTE_ARRAY", "FIXED_LEN_BYTE_ARRAY"};

// parquet.thrift's ConvertedType, which older writers use instead of LogicalType.
struct ConvertedRow {
  int logical;
  int bits = 0;  // of an integer
  bool is_signed = false;
};
constexpr std::array<ConvertedRow, 22> kConverted = {{
    {kStringLogical},
    {kMapLogical},
    {kMapLogical},
    {kListLogical},
    {kEnumLogical},
    {5},
    {6},
    {7},
    {7},
    {8},
    {8},
    {10, 8, false},
    {10, 16, false},
    {10, 32, false},
    {10, 64, false},
    {10, 8, true},
    {10, 16, true},
    {10, 32, true},
    {10, 64, true},
    {kJsonLogical},
    {13},
    {9},  // INTERVAL has no logical type
}};

struct Element {
  std::string name;
  int physical = -1;  // -1: a group
  Repetition repetition = Repetition::kRequired;
  std::uint64_t children = 0;
  int logical = kNoLogicalType;
  int bits = 0;
  bool is_signed = true;
};

Element read_element(ThriftReader& reader) {
  Element element;
  int converted = -1;
  reader.read_struct([&](const ThriftField& field) {
    switch (field.id) {
      case 1:
        element.physical = static_cast<int>(reader.integer(field));
        break;
      case 3:
        element.repetition = static_cast<Repetition>(reader.integer(field));
        break;
      case 4:
        element.name = reader.binary(field);
        break;
      case 5: {
        const std::int64_t children = reader.integer(field);
        element.children = children < 0 ? 0 : static_cast<std::uint64_t>(children);
        break;
      }
      case 6:
        converted = static_cast<int>(reader.integer(field));
        break;
      case 10:
        reader.structure(field, [&](const ThriftField& logical) {
          element.logical = logical.id;
          if (logical.id != kIntegerLogical) return reader.skip(logical);
          reader.structure(logical, [&](const ThriftField& part) {
            if (part.id == 1) {
              element.bits = static_cast<int>(reader.integer(part));
            } else if (part.id == 2) {
              element.is_signed = reader.boolean(part);
            } else {
              reader.skip(part);
            }
          });
        });
        break;
      default:
        reader.skip(field);
    }
  });
  const bool known = converted >= 0 && converted < static_cast<int>(kConverted.size());
  if (element.logical == kNoLogicalType && known) {
    const ConvertedRow& row = kConverted[static_cast<std::size_t>(converted)];
    element.logical = row.logical;
    if (row.logical == kIntegerLogical) {
      element.bits = row.bits;
      element.is_signed = row.is_signed;
    }
  }
  return element;
}

std::string type_name(const Element& element) {
  const auto physical = static_cast<std::size_t>(element.physical);
  const auto logical = static_cast<std::size_t>(element.logical);
  std::string name = physical < kPhysicalNames.size() ? std::string(kPhysicalNames[physical])
                                                      : fmt::format("number {}", element.physical);
  if (element.logical == kIntegerLogical) {
    return fmt::format("{} with the logical type {}INT_{}", name, element.is_signed ? "" : "U",
                       element.bits);
  }
  if (element.logical == kNoLogicalType) return name;
  return name + " with the logical type " +
         (logical < kLogicalNames.size() ? std::string(kLogicalNames[logical])
                                         : fmt::format("number {}", element.logical));
}

// Sets the leaf's type, or `unsupported`.
void set_type(const Element& element, Leaf& leaf) {
  leaf.physical = static_cast<Physical>(element.physical);
  const bool plain = element.logical == kNoLogicalType;
  const bool text = element.logical == kStringLogical || element.logical == kEnumLogical ||
                    element.logical == kJsonLogical;
  const bool integer = plain || element.logical == kIntegerLogical;
  bool supported = false;
  switch (leaf.physical) {
    case Physical::kBoolean:
      leaf.type = ValueType::kBoolean;
      supported = plain;
      break;
    case Physical::kInt32:
      leaf.type = ValueType::kInteger;
      leaf.unsigned_int32 = !plain && !element.is_signed;
      supported = integer;
      break;
    case Physical::kInt64:  // UINT_64 does not fit
      leaf.type = ValueType::kInteger;
      supported = integer && (plain || element.is_signed);
      break;
    case Physical::kFloat:
    case Physical::kDouble:
      leaf.type = ValueType::kReal;
      supported = plain;
      break;
    case Physical::kByteArray:
      leaf.type = ValueType::kString;
      supported = text;
      break;
    case Physical::kInt96:
    case Physical::kFixedLenByteArray:
      break;
  }
  if (!supported) leaf.unsupported = type_name(element);
}

class SchemaTree {
 public:
  SchemaTree(std::vector<Element> elements, const Location& location)
      : elements_(std::move(elements)), location_(location) {}

  std::vector<Leaf> leaves() {
    if (elements_.empty()) location_.fail("the schema is empty");
    const std::uint64_t children = next().children;
    for (std::uint64_t i = 0; i < children; ++i) walk({}, kNamed, 1);
    if (at_ != elements_.size()) {
      location_.fail(fmt::format("the schema has {} elements, expected {} below its root",
                                 elements_.size() - 1, at_ - 1));
    }
    return std::move(leaves_);
  }

 private:
  // How an element takes part in the name of its leaves. A group with the logical type LIST has
  // one repeated child, the entry; if the entry is a group with one child, that is the element.
  enum Role { kNamed, kListEntry, kListElement };

  const Element& next() {
    if (at_ == elements_.size()) {
      location_.fail(fmt::format("the schema has {} elements, expected more below its groups",
                                 elements_.size()));
    }
    return elements_[at_++];
  }

  // `parent` has names and levels of the enclosing groups.
  void walk(Leaf parent, Role role, int depth) {
    if (depth > kMaxSchemaDepth)
      location_.fail(fmt::format("the schema nests deeper than {}", kMaxSchemaDepth));
    const Element& element = next();
    Leaf leaf = std::move(parent);
    const auto join = [&](std::string& name) { name += (name.empty() ? "" : ".") + element.name; };
    join(leaf.path);
    if (leaf.path.size() > kMaxPath) {
      location_.fail(fmt::format("the schema has a column name of more than {} bytes", kMaxPath));
    }
    if (role == kNamed) join(leaf.name);
    if (element.repetition != Repetition::kRequired) ++leaf.max_definition;
    if (element.repetition == Repetition::kRepeated) {
      leaf.list_definition = leaf.max_definition;
      if (++leaf.max_repetition > 1) leaf.unsupported = "a list within a list";
    }
    if (element.physical >= 0) {
      if (leaf.unsupported.empty()) set_type(element, leaf);
      leaves_.push_back(std::move(leaf));
      return;
    }
    if (element.logical == kMapLogical) leaf.unsupported = "a map";
    // The Parquet format's rules for lists of older writers.
    const bool is_element =
        role == kListEntry &&
        (element.children != 1 || element.name == "array" || element.name.ends_with("_tuple"));
    const Role below = element.logical == kListLogical     ? kListEntry
                       : role == kListEntry && !is_element ? kListElement
                                                           : kNamed;
    for (std::uint64_t i = 0; i < element.children; ++i) walk(leaf, below, depth + 1);
  }

  std::vector<Element> elements_;
  const Location& location_;
  std::size_t at_ = 0;
  std::vector<Leaf> leaves_;
};

}  // namespace

std::vector<Leaf> read_schema(ThriftReader& reader, const ThriftField& field) {
  std::vector<Element> elements;
  reader.list(field, ThriftType::kStruct, kMaxElements,
              [&] { elements.push_back(read_element(reader)); });
  return SchemaTree(std::move(elements), reader.location()).leaves();
}

}  // namespace tilewright::columnar
