#include "worker/tasks/own_files/own_files.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <span>
#include <utility>

#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/contract/training_checks.h"
#include "worker/tasks/own_files/labels.h"
#include "worker/tasks/rows/text_file.h"
#include "worker/tasks/sentences/sentence_task.h"

namespace tilewright::tasks::own_files {
namespace {

using sentences::Example;
using sentences::Examples;
using sentences::number_of;
using sentences::sentence_of;

constexpr std::string_view kLabel = "label";

// Of layout(), a log line: bytes of each name, and labels.
constexpr std::size_t kLayoutExcerpt = 16;
constexpr std::size_t kMaxLayoutLabels = 10;

// Questions are in JSON only.
std::string_view other_task(const RowSource& rows) {
  return is_json_file(rows.name()) ? "; for question answering set --task_name squad" : "";
}

struct SplitFile {
  Split split;
  const char* flag;
  const std::string& path;
};

std::vector<SplitFile> files_of(const TaskOptions& options) {
  return {{Split::kTrain, "train_file", options.train_file},
          {Split::kDev, "validation_file", options.validation_file},
          {Split::kTest, "test_file", options.test_file}};
}

// The rows of a split.
std::unique_ptr<RowSource> open(const TaskOptions& options, const DataPart& part) {
  for (const SplitFile& file : files_of(options)) {
    if (file.split != part.split) continue;
    if (!file.path.empty()) return open_rows(file.path);
    throw Failure(ExitCode::kUsage,
                  fmt::format("--{} is missing, expected the file with the rows", file.flag));
  }
  TW_CHECK(false, "unknown split {}", static_cast<int>(part.split));
}

struct Table {
  std::vector<std::string> sentences;
  Labels labels;
  std::vector<std::string> warnings;
};

// As in run_glue: sentence1 and sentence2, else the first two columns that are not the label, or
// the only one.
void find_sentences(const RowSource& rows, Table& table) {
  if (rows.find_column("sentence1") && rows.find_column("sentence2")) {
    table.sentences = {"sentence1", "sentence2"};
    return;
  }
  std::vector<std::string> unused;
  for (const std::string& name : rows.columns()) {
    if (name != kLabel) (table.sentences.size() < 2 ? table.sentences : unused).push_back(name);
  }
  if (table.sentences.empty()) {
    throw Failure(ExitCode::kData,
                  fmt::format("{}: has no column except \"{}\", expected one or two with sentences",
                              rows.name(), kLabel));
  }
  if (unused.empty()) return;
  table.warnings.push_back(fmt::format(
      "{}: not used: {}; the sentences are in the first two columns, {}, because no columns are "
      "named sentence1 and sentence2",
      rows.name(), list_names(unused, "and"), list_names(table.sentences, "and")));
}

// Finds sentence columns with numbers and no text, such as an index: run_glue fails at them too.
class TextFinder {
 public:
  TextFinder(const RowSource& rows, const std::vector<std::string>& names) {
    for (const std::string& name : names) columns_.push_back({name, rows.column(name)});
  }

  // The current row.
  void add(const RowSource& rows) {
    for (Column& column : columns_) {
      const Value value = rows.value(column.index);
      const bool number = is_number(value);
      column.has_number = column.has_number || number;
      column.has_text = column.has_text || (!number && !number_text(value).empty());
    }
  }

  // Throws Failure(kData) if a column has numbers and, up to the last row, no text.
  void finish(RowSource& rows) {
    const auto is_index = [](const Column& column) {
      return column.has_number && !column.has_text;
    };
    while (std::ranges::any_of(columns_, is_index) && rows.next()) add(rows);
    const auto found = std::ranges::find_if(columns_, is_index);
    if (found == columns_.end()) return;
    throw Failure(
        ExitCode::kData,
        fmt::format("{}: the column {} has numbers and no text, expected sentences in the "
                    "first columns or in sentence1 and sentence2; remove this column, or name the "
                    "text's column sentence1 and add sentence2",
                    rows.name(), quoted_excerpt(found->name)));
  }

 private:
  struct Column {
    std::string name;
    std::size_t index;
    bool has_number = false;
    bool has_text = false;
  };
  std::vector<Column> columns_;
};

Table read_training_rows(const TaskOptions& options) {
  const std::unique_ptr<RowSource> rows = open(options, {Split::kTrain});
  Table table;
  find_sentences(*rows, table);
  const std::size_t label = rows->column(kLabel, other_task(*rows));
  LabelFinder finder;
  bool is_empty = true;
  while (rows->next()) {
    is_empty = false;
    finder.add(*rows, rows->value(label));
  }
  if (is_empty) fail_without_rows(rows->name());
  table.labels = finder.finish(*rows);
  if (table.labels.all_whole) {
    table.warnings.push_back(
        fmt::format("{}: all labels are integers, but some are written as 1.0, which makes a "
                    "regression as in run_glue; for a classification write them as 1",
                    rows->name()));
  }
  return table;
}

// Without training rows the labels are the model's.
Table read_header(const TaskOptions& options) {
  if (options.model_labels.empty()) {
    throw Failure(
        ExitCode::kUsage,
        "--train_file is missing, expected it or a model whose config.json has the labels");
  }
  const Split split = options.validation_file.empty() ? Split::kTest : Split::kDev;
  Table table;
  find_sentences(*open(options, {split}), table);
  if (options.model_labels.size() == 1) {
    table.labels.type = LabelType::kNumbers;
  } else {
    table.labels.type = type_of_names(options.model_labels);
    table.labels.names = options.model_labels;
  }
  return table;
}

class OwnFilesTask : public sentences::SentenceTask {
 public:
  OwnFilesTask(TaskOptions options, Table table)
      : SentenceTask("own files", table.labels.names, table.sentences.size() == 2,
                     {table.labels.type == LabelType::kNumbers ? TaskMetric::kMeanSquaredError
                                                               : TaskMetric::kAccuracy}),
        options_(std::move(options)),
        table_(std::move(table)) {
    for (std::size_t i = 0; i < table_.labels.names.size(); ++i) {
      ids_.emplace(table_.labels.names[i], static_cast<std::int32_t>(i));
    }
  }

  std::string file_name(const DataPart& part) const override {
    for (const SplitFile& file : files_of(options_)) {
      if (file.split == part.split) return file.path;
    }
    return "";
  }
  std::vector<std::filesystem::path> input_files(const DataPart& part,
                                                 const std::filesystem::path&) const override {
    return {file_name(part)};
  }

  std::string layout() const override {
    std::vector<std::string> sentences;
    for (const std::string& name : table_.sentences) {
      sentences.push_back(quoted_excerpt(name, kLayoutExcerpt));
    }
    const bool has_label = !options_.train_file.empty() || !options_.validation_file.empty();
    const std::span<const std::string> labels(label_names());
    std::vector<std::string> shown;
    for (const std::string& name : labels.first(std::min(labels.size(), kMaxLayoutLabels)))
      shown.push_back(excerpt(name, kLayoutExcerpt));
    return fmt::format(
        "{} (sentences){}; {}", fmt::join(sentences, " and "),
        has_label ? fmt::format(", \"{}\"", kLabel) : "",
        is_regression()
            ? "regression"
            : fmt::format("classification, {}: {}{}", counted(label_names().size(), "label"),
                          fmt::join(shown, ", "),
                          shown.size() < label_names().size() ? ", ..." : ""));
  }
  std::vector<std::string> layout_warnings() const override { return table_.warnings; }

 private:
  bool has_rows(const DataPart& part, const std::filesystem::path&) const override {
    return !file_name(part).empty();
  }

  Examples read_examples(const DataPart& part, const std::filesystem::path&,
                         std::size_t max_rows) const override {
    const std::unique_ptr<RowSource> rows = open(options_, part);
    const bool has_labels = part.split != Split::kTest;
    std::vector<std::size_t> columns;
    for (const std::string& name : table_.sentences) columns.push_back(rows->column(name));
    const std::size_t label = has_labels ? rows->column(kLabel, other_task(*rows)) : 0;
    TextFinder text(*rows, table_.sentences);
    Examples examples;
    while (rows->next()) {
      text.add(*rows);
      Example example;
      example.first = sentence_of(*rows, table_.sentences[0], rows->value(columns[0]));
      if (is_pair()) {
        example.second = sentence_of(*rows, table_.sentences[1], rows->value(columns[1]));
      }
      if (has_labels && is_regression()) {
        example.value = number_of(*rows, kLabel, rows->value(label));
      } else if (has_labels) {
        example.label = label_of(*rows, rows->value(label));
      }
      examples.indices.push_back(std::ssize(examples.rows));
      examples.rows.push_back(std::move(example));
      if (max_rows > 0 && examples.rows.size() == max_rows) break;
    }
    if (examples.rows.empty()) fail_without_rows(rows->name());
    text.finish(*rows);
    return examples;
  }

  std::int32_t label_of(const RowSource& rows, const Value& value) const {
    const auto found = ids_.find(label_name(table_.labels.type, value));
    if (found != ids_.end()) return found->second;
    const bool is_models = options_.train_file.empty();
    rows.fail(fmt::format("the label is {}, expected one of the {}: {}", quoted_excerpt(value.text),
                          is_models ? "model" : "training file", list_names(label_names(), "or")));
  }

  // run_glue's name without --task_name.
  std::string result_name(const DataPart&) const override { return "None"; }

  const TaskOptions options_;
  const Table table_;
  std::map<std::string, std::int32_t> ids_;
};

}  // namespace

std::unique_ptr<const Task> make_task(const TaskOptions& options) {
  for (const SplitFile& file : files_of(options)) {
    if (file.path.empty() || has_row_suffix(file.path)) continue;
    throw Failure(ExitCode::kUsage,
                  fmt::format("--{}={}: expected {}", file.flag, file.path, kExpectedRowSuffix));
  }
  Table table = options.train_file.empty() ? read_header(options) : read_training_rows(options);
  return std::make_unique<OwnFilesTask>(options, std::move(table));
}

}  // namespace tilewright::tasks::own_files
