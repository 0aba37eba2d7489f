#include "worker/tasks/rows/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/result.h"
#include "worker/columnar/arrow_stream.h"
#include "worker/columnar/parquet.h"

namespace tilewright::tasks {
namespace {

// As the hub's data sets name them.
std::string split_name(Split split) {
  switch (split) {
    case Split::kTrain:
      return "train";
    case Split::kDev:
      return "validation";
    case Split::kTest:
      return "test";
  }
  TW_CHECK(false, "unknown split {}", static_cast<int>(split));
}

class TableRows : public RowSource {
 public:
  explicit TableRows(std::vector<columnar::Table> tables) : tables_(std::move(tables)) {
    TW_CHECK(!tables_.empty(), "no table");
    for (const columnar::Column& column : tables_.front().columns()) {
      columns_.push_back(column.name());
    }
    for (const columnar::Table& table : tables_) check_columns(table);
  }

  const std::vector<std::string>& columns() const override { return columns_; }

  bool next() override {
    if (started_) ++row_;
    started_ = true;
    while (table_ < tables_.size() && row_ >= tables_[table_].rows()) {
      ++table_;
      row_ = 0;
    }
    return table_ < tables_.size();
  }

  Value value(std::size_t column) const override {
    const columnar::Column& cells = tables_[table_].columns()[column];
    if (cells.is_null(row_)) return {};
    if (cells.is_list()) return {ValueKind::kOther, "a list"};
    switch (cells.type()) {
      case columnar::ValueType::kString:
        return {ValueKind::kString, cells.strings()[row_]};
      case columnar::ValueType::kInteger:
        return {ValueKind::kInteger, keep(column, fmt::format("{}", cells.integers()[row_]))};
      case columnar::ValueType::kReal:
        return {ValueKind::kReal, keep(column, fmt::format("{}", cells.reals()[row_]))};
      case columnar::ValueType::kBoolean:
        return {ValueKind::kBoolean, cells.integers()[row_] != 0 ? "True" : "False"};
    }
    return {ValueKind::kOther, {}};
  }

  std::string name() const override { return tables_.front().path().string(); }
  std::string location() const override {
    const std::size_t table = std::min(table_, tables_.size() - 1);
    return fmt::format("{}: row {}", tables_[table].path().string(), row_ + 1);
  }

 private:
  void check_columns(const columnar::Table& table) const {
    bool same = table.columns().size() == columns_.size();
    for (std::size_t i = 0; same && i < columns_.size(); ++i) {
      same = table.columns()[i].name() == columns_[i];
    }
    if (same) return;
    throw Failure(ExitCode::kData,
                  fmt::format("{}: found other columns than in {}, expected the same",
                              table.path().string(), tables_.front().path().string()));
  }

  // Keeps the text of a number until the next row; the values of a row are used together.
  std::string_view keep(std::size_t column, std::string text) const {
    numbers_.resize(columns_.size());
    numbers_[column] = std::move(text);
    return numbers_[column];
  }

  const std::vector<columnar::Table> tables_;
  std::vector<std::string> columns_;
  std::size_t table_ = 0;
  std::size_t row_ = 0;
  bool started_ = false;
  mutable std::vector<std::string> numbers_;
};

}  // namespace

DataTables::DataTables(std::string name, Format format, Splits splits)
    : name_(std::move(name)), format_(format), splits_(std::move(splits)) {}

DataTables::Splits::const_iterator DataTables::find(const DataPart& part) const {
  const std::string name = split_name(part.split);
  const auto found = part.part == 0 ? splits_.find(name) : splits_.end();
  if (found != splits_.end()) return found;
  return splits_.find(name + (part.part == 0 ? "_matched" : "_mismatched"));
}

bool DataTables::has(const DataPart& part) const { return find(part) != splits_.end(); }

std::vector<std::filesystem::path> DataTables::files(const DataPart& part) const {
  const auto found = find(part);
  return found == splits_.end() ? std::vector<std::filesystem::path>() : found->second;
}

std::vector<columnar::Table> DataTables::read(const DataPart& part,
                                              const columnar::Selection& columns) const {
  const auto found = find(part);
  if (found == splits_.end()) {
    std::string known;
    for (const auto& [split, files] : splits_) known += (known.empty() ? "" : ", ") + split;
    throw Failure(ExitCode::kData, fmt::format("data set {}: found the splits {}, expected {}",
                                               name_, known, split_name(part.split)));
  }
  std::vector<columnar::Table> tables;
  for (const std::filesystem::path& file : found->second) {
    tables.push_back(format_ == Format::kParquet ? columnar::read_parquet(file, columns)
                                                 : columnar::read_arrow_stream(file, columns));
  }
  return tables;
}

std::unique_ptr<RowSource> rows_of(std::vector<columnar::Table> tables) {
  return std::make_unique<TableRows>(std::move(tables));
}

}  // namespace tilewright::tasks
