#include "worker/columnar/arrow_stream.h"

#include <fmt/format.h>

#include <optional>
#include <utility>

#include "common/base/mapped_file.h"
#include "common/base/printable.h"
#include "worker/columnar/arrow_metadata.h"
#include "worker/columnar/selection.h"
#include "worker/text/utf8.h"

namespace tilewright::columnar {
namespace {

// A column of the table, in the order in which the fields of the schema are traversed.
struct ArrowLeaf {
  std::string name;
  std::string unsupported;  // its type, if values of it cannot be read; else empty
  ValueType type = ValueType::kString;
  bool list = false;
};

void collect_leaves(const ArrowField& field, const std::string& name, bool in_list,
                    std::vector<ArrowLeaf>& leaves) {
  ArrowLeaf leaf{name, {}, ValueType::kString, in_list};
  switch (field.kind) {
    case ArrowKind::kStruct:
      for (const ArrowField& child : field.children) {
        collect_leaves(child, name + "." + child.name, in_list, leaves);
      }
      return;
    case ArrowKind::kList:
      if (!in_list) return collect_leaves(field.children[0], name, true, leaves);
      leaf.unsupported = "a list within a list";
      break;
    case ArrowKind::kString:
      break;
    case ArrowKind::kInteger:
      leaf.type = ValueType::kInteger;
      break;
    case ArrowKind::kReal:
      leaf.type = ValueType::kReal;
      break;
    case ArrowKind::kBoolean:
      leaf.type = ValueType::kBoolean;
      break;
    case ArrowKind::kNull:
    case ArrowKind::kOpaque:
    case ArrowKind::kUnknown:
      leaf.unsupported = field.type;
      break;
  }
  leaves.push_back(std::move(leaf));
}

// A bitmap; without bytes every bit is set.
class Validity {
 public:
  Validity() = default;
  explicit Validity(Bytes bits) : bits_(bits) {}
  bool operator[](std::uint64_t i) const {
    return bits_.empty() || (std::to_integer<unsigned>(bits_[i / 8]) >> (i % 8) & 1u) != 0;
  }

 private:
  Bytes bits_{};
};

// The rows that the structs and the list around an array give it.
struct Scope {
  std::uint64_t length = 0;              // elements of the array
  std::vector<Validity> structs;         // of the structs between the array and its list or the top
  bool in_list = false;                  // then row r has the elements offsets[r] to offsets[r + 1]
  std::vector<std::uint64_t> offsets;    // [rows + 1]
  std::vector<std::uint8_t> list_valid;  // [rows]

  bool valid(std::uint64_t i) const {
    for (const Validity& validity : structs) {
      if (!validity[i]) return false;
    }
    return true;
  }
};

// Appends the columns of one record batch.
class BatchReader {
 public:
  BatchReader(const ArrowBatch& batch, Bytes body, std::vector<std::optional<Column>>& columns,
              Budget& budget, const Location& location)
      : batch_(batch), body_(body), columns_(columns), budget_(budget), location_(location) {}

  void read(const std::vector<ArrowField>& schema) {
    if (batch_.rows < 0) location_.fail(fmt::format("a record batch has {} rows", batch_.rows));
    for (const ArrowField& field : schema) {
      Scope scope;
      scope.length = static_cast<std::uint64_t>(batch_.rows);
      read_field(field, std::move(scope));
    }
    if (node_ != batch_.nodes.size() || buffer_ != batch_.buffers.size()) {
      location_.fail(fmt::format("a record batch has {} arrays and {} buffers, expected {} and {}",
                                 batch_.nodes.size(), batch_.buffers.size(), node_, buffer_));
    }
  }

 private:
  struct Node {
    std::uint64_t length;
    std::uint64_t nulls;
  };

  Node next_node() {
    if (node_ >= batch_.nodes.size()) location_.fail("a record batch has too few arrays");
    const Bytes bytes = batch_.nodes[node_++];
    const auto length = load<std::int64_t>(bytes, 0);
    const auto nulls = load<std::int64_t>(bytes, sizeof length);
    if (length < 0 || nulls < 0 || nulls > length) {
      location_.fail(fmt::format("an array has {} elements and {} nulls", length, nulls));
    }
    return {static_cast<std::uint64_t>(length), static_cast<std::uint64_t>(nulls)};
  }

  // The next buffer, which must have at least `bytes` bytes.
  Bytes next_buffer(std::uint64_t bytes) {
    if (buffer_ >= batch_.buffers.size()) location_.fail("a record batch has too few buffers");
    const Bytes pair = batch_.buffers[buffer_++];
    const auto offset = load<std::uint64_t>(pair, 0);
    const auto size = load<std::uint64_t>(pair, sizeof offset);
    if (offset > body_.size() || size > body_.size() - offset) {
      location_.fail(
          fmt::format("a buffer of {} bytes at byte {} is past the end of its record "
                      "batch of {} bytes",
                      size, offset, body_.size()));
    }
    if (size < bytes) {
      location_.fail(fmt::format("a buffer has {} bytes, expected at least {}", size, bytes));
    }
    return body_.subspan(static_cast<std::size_t>(offset), static_cast<std::size_t>(size));
  }

  // `elements` times `bytes`. The array's length is not yet known to be plausible.
  std::uint64_t product(std::uint64_t elements, std::uint64_t bytes) const {
    std::uint64_t size = 0;
    if (__builtin_mul_overflow(elements, bytes, &size)) {
      location_.fail(fmt::format("an array has {} elements", elements));
    }
    return size;
  }

  Validity next_validity(const Node& node) {
    const Bytes bits = next_buffer(node.nulls > 0 ? node.length / 8 + (node.length % 8 != 0) : 0);
    return node.nulls > 0 ? Validity(bits) : Validity();
  }

  // Counts nodes, buffers and leaves of a field without reading it.
  void skip(const ArrowField& field, bool in_list) {
    ++node_;
    switch (field.kind) {
      case ArrowKind::kNull:
        break;
      case ArrowKind::kBoolean:
      case ArrowKind::kInteger:
      case ArrowKind::kReal:
      case ArrowKind::kList:
        buffer_ += 2;
        break;
      case ArrowKind::kString:
        buffer_ += 3;
        break;
      case ArrowKind::kStruct:
        buffer_ += 1;
        break;
      case ArrowKind::kOpaque:
        buffer_ += field.buffers;
        break;
      case ArrowKind::kUnknown:
        location_.fail(
            fmt::format("column {} is {}, expected strings, integers, floating-point "
                        "numbers, booleans, or lists of them",
                        quoted_excerpt(field.name), field.type));
    }
    const bool is_column =
        field.kind != ArrowKind::kStruct && (field.kind != ArrowKind::kList || in_list);
    if (is_column && !within_column_) ++leaf_;
    const bool outer = std::exchange(within_column_, within_column_ || is_column);
    for (const ArrowField& child : field.children) {
      skip(child, in_list || field.kind == ArrowKind::kList);
    }
    within_column_ = outer;
  }

  void read_field(const ArrowField& field, Scope scope) {
    const std::size_t count = leaves_below(field, scope.in_list);
    bool any = false;
    for (std::size_t i = 0; i < count; ++i) any = any || columns_[leaf_ + i].has_value();
    if (!any) return skip(field, scope.in_list);
    const Node node = next_node();
    // A list's child may have elements that no row uses.
    if (scope.in_list ? node.length < scope.length : node.length != scope.length) {
      location_.fail(fmt::format("an array of column {} has {} elements, expected {}",
                                 quoted_excerpt(field.name), node.length, scope.length));
    }
    const Validity validity = next_validity(node);
    switch (field.kind) {
      case ArrowKind::kStruct:
        scope.length = node.length;
        scope.structs.push_back(validity);
        for (const ArrowField& child : field.children) read_field(child, scope);
        return;
      case ArrowKind::kList:
        return read_list(field, node, validity, scope);
      default:
        scope.structs.push_back(validity);
        return read_leaf(field, node, scope);
    }
  }

  static std::size_t leaves_below(const ArrowField& field, bool in_list) {
    if (field.kind == ArrowKind::kList && !in_list) return leaves_below(field.children[0], true);
    if (field.kind != ArrowKind::kStruct) return 1;
    std::size_t count = 0;
    for (const ArrowField& child : field.children) count += leaves_below(child, in_list);
    return count;
  }

  // The offsets of `node`'s elements, which do not decrease. An empty array may have none.
  std::vector<std::uint64_t> next_offsets(const Node& node, unsigned bytes) {
    if (node.length == 0) {
      next_buffer(0);
      return {0};
    }
    const std::uint64_t size = product(node.length, bytes);
    if (size > body_.size()) location_.fail(fmt::format("an array has {} elements", node.length));
    const Bytes buffer = next_buffer(size + bytes);
    std::vector<std::uint64_t> offsets(static_cast<std::size_t>(node.length) + 1);
    for (std::size_t i = 0; i < offsets.size(); ++i) {
      // Negative offsets become larger than any buffer.
      offsets[i] = bytes == 4 ? static_cast<std::uint64_t>(load<std::int32_t>(buffer, i * bytes))
                              : load<std::uint64_t>(buffer, i * bytes);
      if (i > 0 && offsets[i] < offsets[i - 1]) {
        location_.fail(
            fmt::format("an array has offset {} after offset {}", offsets[i], offsets[i - 1]));
      }
    }
    return offsets;
  }

  void read_list(const ArrowField& field, const Node& node, const Validity& validity,
                 const Scope& outer) {
    Scope scope;
    scope.in_list = true;
    scope.offsets = next_offsets(node, field.bytes);
    scope.length = scope.offsets.back();
    scope.list_valid.resize(static_cast<std::size_t>(node.length));
    for (std::size_t row = 0; row < scope.list_valid.size(); ++row) {
      scope.list_valid[row] = validity[row] && outer.valid(row) ? 1 : 0;
    }
    read_field(field.children[0], std::move(scope));
  }

  // Adds element i of the leaf's array to the column.
  template <typename Add>
  void add_rows(const Scope& scope, Column& column, const Column::Limit& limit, Add&& add) {
    if (!scope.in_list) {
      for (std::uint64_t i = 0; i < scope.length; ++i) {
        if (!scope.valid(i)) {
          column.add_null_row(limit);
          continue;
        }
        add(i);
        column.add_rows(1, limit);
      }
      return;
    }
    for (std::size_t row = 0; row < scope.list_valid.size(); ++row) {
      column.begin_list(scope.list_valid[row] != 0, limit);
      if (scope.list_valid[row] == 0) continue;
      for (std::uint64_t i = scope.offsets[row]; i < scope.offsets[row + 1]; ++i) {
        if (!scope.valid(i)) {
          limit.location.fail(fmt::format(
              "row {} is a list that contains a null, expected none in lists", column.rows()));
        }
        add(i);
        column.extend_list(1);
      }
    }
  }

  template <typename Value>
  void add_integers(const Node& node, const Scope& scope, Column& column,
                    const Column::Limit& limit) {
    const Bytes values = next_buffer(product(node.length, sizeof(Value)));
    add_rows(scope, column, limit, [&](std::uint64_t i) {
      column.add_integer(load<Value>(values, static_cast<std::size_t>(i) * sizeof(Value)), limit);
    });
  }

  template <typename Value>
  void add_reals(const Node& node, const Scope& scope, Column& column, const Column::Limit& limit) {
    const Bytes values = next_buffer(product(node.length, sizeof(Value)));
    add_rows(scope, column, limit, [&](std::uint64_t i) {
      column.add_real(load<Value>(values, static_cast<std::size_t>(i) * sizeof(Value)), limit);
    });
  }

  void add_strings(const ArrowField& field, const Node& node, const Scope& scope, Column& column,
                   const Column::Limit& limit) {
    const std::vector<std::uint64_t> offsets = next_offsets(node, field.bytes);
    const std::string_view bytes = as_text(next_buffer(offsets.back()));
    add_rows(scope, column, limit, [&](std::uint64_t i) {
      const auto begin = static_cast<std::size_t>(offsets[static_cast<std::size_t>(i)]);
      const auto end = static_cast<std::size_t>(offsets[static_cast<std::size_t>(i) + 1]);
      const std::string_view string = bytes.substr(begin, end - begin);
      if (const auto bad = text::find_invalid_utf8(string)) {
        limit.location.fail(
            fmt::format("byte {} of string {} is not valid UTF-8, expected text in UTF-8", *bad + 1,
                        quoted_excerpt(string, kLineExcerpt)));
      }
      column.add_string(string, limit);
    });
  }

  void read_leaf(const ArrowField& field, const Node& node, const Scope& scope) {
    Column& column = *columns_[leaf_++];
    const Location location = location_.at(fmt::format("column {}", quoted_excerpt(column.name())));
    const Column::Limit limit{budget_, location};
    switch (field.kind) {
      case ArrowKind::kString:
        return add_strings(field, node, scope, column, limit);
      case ArrowKind::kReal:
        if (field.bytes == 4) return add_reals<float>(node, scope, column, limit);
        return add_reals<double>(node, scope, column, limit);
      case ArrowKind::kBoolean: {
        const Bytes bits = next_buffer(node.length / 8 + (node.length % 8 != 0));
        return add_rows(scope, column, limit, [&](std::uint64_t i) {
          column.add_integer(std::to_integer<unsigned>(bits[i / 8]) >> (i % 8) & 1u, limit);
        });
      }
      case ArrowKind::kInteger:
        switch (field.bytes) {
          case 1:
            if (field.is_signed) return add_integers<std::int8_t>(node, scope, column, limit);
            return add_integers<std::uint8_t>(node, scope, column, limit);
          case 2:
            if (field.is_signed) return add_integers<std::int16_t>(node, scope, column, limit);
            return add_integers<std::uint16_t>(node, scope, column, limit);
          case 4:
            if (field.is_signed) return add_integers<std::int32_t>(node, scope, column, limit);
            return add_integers<std::uint32_t>(node, scope, column, limit);
          default:
            return add_integers<std::int64_t>(node, scope, column, limit);
        }
      default:
        TW_CHECK(false, "column {} has a type that parse_arrow_stream() refuses", column.name());
    }
  }

  const ArrowBatch& batch_;
  Bytes body_;
  std::vector<std::optional<Column>>& columns_;
  Budget& budget_;
  const Location& location_;
  // The next array, buffer and column.
  std::size_t node_ = 0;
  std::size_t buffer_ = 0;
  std::size_t leaf_ = 0;
  bool within_column_ = false;  // skip() is below the field of a column
};

}  // namespace

Table parse_arrow_stream(Bytes content, const std::filesystem::path& path,
                         const Selection& selection) {
  const Location location(path.string());
  if (as_text(content).starts_with("ARROW1")) {
    location.fail("is an Arrow file in the random-access format, expected an Arrow stream");
  }
  ByteReader stream(content, location);
  const std::optional<ArrowMessage> first = read_arrow_message(stream, location);
  if (!first || first->type != ArrowMessageType::kSchema) {
    location.fail("the first message is not a schema");
  }
  const std::vector<ArrowField> schema = read_arrow_schema(first->header);
  std::vector<ArrowLeaf> leaves;
  for (const ArrowField& field : schema) {
    collect_leaves(field, field.name, false, leaves);
  }
  std::vector<std::string> names;
  names.reserve(leaves.size());
  for (const ArrowLeaf& leaf : leaves) names.push_back(leaf.name);
  const std::vector<bool> selected = select_columns(names, selection, location);
  std::vector<std::optional<Column>> read(leaves.size());
  for (std::size_t i = 0; i < leaves.size(); ++i) {
    if (!selected[i]) continue;
    if (!leaves[i].unsupported.empty()) {
      location.at(fmt::format("column {}", quoted_excerpt(names[i])))
          .fail(fmt::format("found {}, expected strings, integers, floating-point numbers, "
                            "booleans, or lists of them",
                            leaves[i].unsupported));
    }
    read[i].emplace(names[i], leaves[i].type, leaves[i].list);
  }
  Budget budget("the table", content.size(), kMaxTableBytes);
  std::uint64_t rows = 0;
  for (;;) {
    const Location place = location.at(fmt::format("message at byte {}", stream.position()));
    const std::optional<ArrowMessage> message = read_arrow_message(stream, place);
    if (!message) break;
    if (message->type == ArrowMessageType::kDictionaryBatch) continue;  // of a column not selected
    if (message->type != ArrowMessageType::kRecordBatch) {
      place.fail(fmt::format("found a message of type {}, expected a record batch",
                             static_cast<int>(message->type)));
    }
    const ArrowBatch batch = read_arrow_batch(message->header);
    BatchReader(batch, message->body, read, budget, place).read(schema);
    rows += static_cast<std::uint64_t>(batch.rows);
  }
  if (stream.left() > 0) {
    location.fail(fmt::format("has {} bytes after the end of the stream", stream.left()));
  }
  std::vector<Column> complete;
  for (std::optional<Column>& column : read) {
    if (column) complete.push_back(std::move(*column));
  }
  return Table(path, static_cast<std::size_t>(rows), std::move(complete));
}

Table read_arrow_stream(const std::filesystem::path& path, const Selection& selection) {
  const MappedFile file(path, ExitCode::kData);
  Table table = parse_arrow_stream(file.content(), path, selection);
  file.check_size();
  return table;
}

}  // namespace tilewright::columnar
