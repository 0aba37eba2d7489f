// Rows with named columns, one at a time, from a file or from memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tilewright::tasks {

enum class ValueKind {
  kMissing,  // null, or a row that ends before the column
  kField,    // of a text file, which does not tell numbers from strings
  kString,
  kInteger,
  kReal,
  kBoolean,
  kOther,  // a list or an object
};

struct Value {
  ValueKind kind = ValueKind::kMissing;
  std::string_view text;  // a number in decimal, a boolean as "True" or "False", as in Python
};

// The text of a value without what pandas, which reads files for run_glue, ignores around a number
// in a field: blanks, and a plus sign before it.
std::string_view number_text(const Value& value);

// Whether the value is a number or a field of a text file that spells one, as from_chars reads it;
// it may be out of the range of double.
bool is_number(const Value& value);

// At most this many bytes in a row of a text file, and in a string of a JSON file.
inline constexpr std::size_t kMaxRowBytes = std::size_t{1} << 20;
inline constexpr std::uint64_t kMaxRowFileBytes = std::uint64_t{1} << 30;
inline constexpr std::size_t kMaxColumns = 4096;

class RowSource {
 public:
  virtual ~RowSource() = default;
  RowSource(const RowSource&) = delete;
  RowSource& operator=(const RowSource&) = delete;

  // Empty if the columns have no names.
  virtual const std::vector<std::string>& columns() const = 0;

  // Goes to the next row, at first to the first one; false after the last. Throws Failure(kData)
  // if the row is malformed.
  virtual bool next() = 0;

  // Of the current row. The text is valid UTF-8 and stays until next().
  virtual Value value(std::size_t column) const = 0;

  // The file: "data/train.tsv".
  virtual std::string name() const = 0;
  // The current row: "data/train.tsv:12".
  virtual std::string location() const = 0;

  std::optional<std::size_t> find_column(std::string_view name) const;
  // Throws Failure(kData), which lists the columns and ends with `advice`, if it is missing.
  std::size_t column(std::string_view name, std::string_view advice = {}) const;
  // Throws Failure(kData) with the message "LOCATION: MESSAGE".
  [[noreturn]] void fail(const std::string& message) const;

 protected:
  RowSource() = default;
};

// For messages: "a", "b" CONJUNCTION 5 others. The names, of which there is one at least, are
// shortened.
std::string list_names(std::span<const std::string> names, std::string_view conjunction);

// By its suffix: .json or .jsonl.
bool is_json_file(const std::filesystem::path& path);
// Reads a file as its suffix says; has_row_suffix() knows the same. Throws Failure(kData).
std::unique_ptr<RowSource> open_rows(const std::string& path);

}  // namespace tilewright::tasks
