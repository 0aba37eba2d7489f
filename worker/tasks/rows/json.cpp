#include "worker/tasks/rows/json.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "common/base/json_events.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "worker/tasks/rows/text_file.h"

namespace tilewright::tasks {
namespace {

using nlohmann::json;

constexpr const char* kDataMember = "data";

// The end of what has been read, and the line of the last character. A line ends with its line
// feed, which the parser reads to find the end of a number.
struct Position {
  const char* at = nullptr;
  std::size_t line = 1;
  bool line_ended = false;

  void advance() {
    if (line_ended) ++line;
    line_ended = *at == '\n';
    ++at;
  }
};

class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, Position* position) : at_(at), position_(position) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    position_->at = at_++;
    position_->advance();
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  Position* position_;
};

// What the parser says of JSON that is not valid: " (unexpected '}'; expected string literal)".
std::string reason_of(std::string_view what) {
  constexpr std::string_view kBefore = " - ";
  const std::size_t begin = what.find(kBefore);
  if (begin == what.npos) return "";
  what.remove_prefix(begin + kBefore.size());
  return fmt::format(" ({})", printable(what.substr(0, what.find("; last read: "))));
}

// Receives the parser's events and stores the rows.
class RowHandler : public nlohmann::json_sax<json> {
 public:
  RowHandler(std::string name, const Position& position, std::vector<std::string>& columns,
             std::vector<JsonRows::Row>& rows)
      : name_(std::move(name)), position_(position), columns_(columns), rows_(rows) {}

  bool null() override { return scalar(ValueKind::kMissing, "", "null"); }
  bool boolean(bool value) override {
    return scalar(ValueKind::kBoolean, value ? "True" : "False", "a boolean");
  }
  bool number_integer(number_integer_t value) override {
    return scalar(ValueKind::kInteger, std::to_string(value), "a number");
  }
  bool number_unsigned(number_unsigned_t value) override {
    return scalar(ValueKind::kInteger, std::to_string(value), "a number");
  }
  bool number_float(number_float_t value, const string_t&) override {
    return scalar(ValueKind::kReal, fmt::format("{}", value), "a number");
  }
  bool string(string_t& value) override {
    if (value.size() > kMaxRowBytes) fail("a string " + format_too_long(value.size()));
    return scalar(ValueKind::kString, std::move(value), "a string");
  }
  bool binary(binary_t&) override { return false; }  // JSON has none

  bool start_object(std::size_t) override {
    if (in_row()) {
      if (depth_ == row_depth_) set_cell(ValueKind::kOther, "an object");
    } else if (!is_ignored()) {
      if (document_ended_) fail("found an object after the rows, expected the end of the file");
      rows_.push_back({position_.line, {}});
      row_depth_ = depth_ + 1;
    }
    return enter();
  }
  bool key(string_t& name) override {
    if (is_ignored() && depth_ == 1 && name == kDataMember) {
      fail(fmt::format("the object has two members {}", quoted_excerpt(name)));
    }
    if (!in_row() || depth_ != row_depth_) return true;
    const auto [found, is_new] = column_ids_.try_emplace(std::move(name), columns_.size());
    if (is_new) {
      if (columns_.size() == kMaxColumns) {
        fail(fmt::format("found more than {} different members in the objects", kMaxColumns));
      }
      columns_.push_back(found->first);
    }
    column_ = found->second;
    if (!seen_.insert(column_).second) {
      fail(fmt::format("the object has two members {}", quoted_excerpt(found->first)));
    }
    rows_.back().cells.push_back({.column = static_cast<std::uint32_t>(column_), .text = {}});
    return true;
  }
  bool end_object() override {
    --depth_;
    if (in_row() && depth_ < row_depth_) end_row();
    if (depth_ == 0 && is_document_) document_ended_ = true;
    return true;
  }
  bool start_array(std::size_t) override {
    if (in_row() && is_data_member()) {
      // The object is the document, not a row.
      rows_.clear();
      columns_.clear();
      column_ids_.clear();
      end_row();
      is_document_ = true;
      array_depth_ = depth_ + 1;
    } else if (in_row()) {
      if (depth_ == row_depth_) set_cell(ValueKind::kOther, "a list");
    } else if (!is_ignored()) {
      if (depth_ > 0) fail("found a list in the list of rows, expected an object");
      if (document_ended_) fail("found a list after the rows, expected the end of the file");
      array_depth_ = 1;
    }
    return enter();
  }
  bool end_array() override {
    --depth_;
    if (array_depth_ > 0 && depth_ < array_depth_) {
      array_depth_ = 0;
      if (depth_ == 0) document_ended_ = true;
    }
    return true;
  }
  bool parse_error(std::size_t, const std::string& last_token,
                   const nlohmann::detail::exception& error) override {
    const bool overflows = dynamic_cast<const json::out_of_range*>(&error) != nullptr;
    problem_ = fmt::format("found {}, {}", quoted_excerpt(last_token),
                           overflows ? "which is out of a double's range"
                                     : "which is not valid JSON" + reason_of(error.what()));
    return false;
  }

  [[noreturn]] void fail(const std::string& message) const {
    throw Failure(ExitCode::kData, fmt::format("{}:{}: {}", name_, position_.line, message));
  }
  const std::string& problem() const { return problem_; }  // of a parse_error()

 private:
  bool in_row() const { return row_depth_ > 0; }
  // In the members other than "data".
  bool is_ignored() const { return is_document_ && array_depth_ == 0 && depth_ > 0; }
  // The first object of the file, and nothing before it.
  bool is_data_member() const {
    return depth_ == 1 && row_depth_ == 1 && array_depth_ == 0 && rows_.size() == 1 &&
           columns_[column_] == kDataMember;
  }
  bool enter() {
    if (std::cmp_greater(++depth_, kMaxJsonDepth)) {
      fail(fmt::format("the JSON nests deeper than {} levels", kMaxJsonDepth));
    }
    return true;
  }
  void end_row() {
    row_depth_ = 0;
    seen_.clear();
  }
  void set_cell(ValueKind kind, std::string text) {
    JsonRows::Cell& cell = rows_.back().cells.back();
    cell.kind = kind;
    cell.text = std::move(text);
  }
  bool scalar(ValueKind kind, std::string text, const char* what) {
    if (in_row()) {
      if (depth_ == row_depth_) set_cell(kind, std::move(text));
    } else if (!is_ignored()) {
      fail(fmt::format("found {}, expected an object with the members of a row", what));
    }
    return true;
  }

  const std::string name_;
  const Position& position_;
  std::vector<std::string>& columns_;
  std::vector<JsonRows::Row>& rows_;
  std::map<std::string, std::size_t> column_ids_;
  std::set<std::size_t> seen_;  // columns of the current row
  std::size_t column_ = 0;      // of the value that comes next
  int depth_ = 0;               // objects and lists that are open
  int row_depth_ = 0;           // depth_ directly in the current row; 0: not in a row
  int array_depth_ = 0;         // depth_ directly in the list of rows; 0: not in it
  bool is_document_ = false;    // {"data": [...]}
  bool document_ended_ = false;
  std::string problem_;
};

// Whether something follows white space, which is skipped.
bool skip_space(Position& position, const char* end) {
  constexpr std::string_view kSpace = " \t\n\r";
  while (position.at != end && kSpace.find(*position.at) != kSpace.npos) position.advance();
  return position.at != end;
}

}  // namespace

JsonRows::JsonRows(const std::filesystem::path& path) : name_(path.string()) {
  const std::string content = read_text_file(path);
  const char* const end = content.data() + content.size();
  Position position{content.data()};
  RowHandler handler(name_, position, columns_, rows_);
  while (skip_space(position, end)) {
    if (*position.at == '\0') {
      position.advance();
      handler.fail("found a NUL byte, expected a row or the end of the file");
    }
    // Not strict: reads one value and stops.
    if (json::sax_parse(CountingIterator(position.at, &position), CountingIterator(end, &position),
                        &handler, json::input_format_t::json, false)) {
      continue;
    }
    if (position.at == end) handler.fail("the file ends within a JSON value, expected its end");
    handler.fail(handler.problem());
  }
  if (rows_.empty()) fail_without_rows(name_);
}

bool JsonRows::next() {
  if (next_ == rows_.size()) return false;
  ++next_;
  return true;
}

Value JsonRows::value(std::size_t column) const {
  const std::vector<Cell>& cells = rows_[next_ - 1].cells;
  const auto is_of_column = [column](const Cell& cell) { return cell.column == column; };
  // As a rule all objects have the same members in the same order.
  const bool in_order = column < cells.size() && is_of_column(cells[column]);
  const auto cell = in_order ? cells.begin() + static_cast<std::ptrdiff_t>(column)
                             : std::ranges::find_if(cells, is_of_column);
  return cell == cells.end() ? Value{} : Value{cell->kind, cell->text};
}

std::string JsonRows::location() const {
  return next_ == 0 ? name_ : fmt::format("{}:{}", name_, rows_[next_ - 1].line);
}

}  // namespace tilewright::tasks
