#include "worker/tasks/glue/glue.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "common/base/check.h"
#include "common/base/printable.h"
#include "common/base/result.h"
#include "common/base/strings.h"
#include "common/contract/tasks.h"
#include "worker/tasks/label_order.h"
#include "worker/tasks/rows/text_file.h"
#include "worker/tasks/rows/tsv.h"
#include "worker/tasks/sentences/sentence_task.h"

namespace tilewright::tasks::glue {
namespace {

using sentences::Example;
using sentences::Examples;
using sentences::number_of;
using sentences::sentence_of;

constexpr std::string_view kHubLabel = "label";
constexpr std::string_view kHubIndex = "idx";

std::vector<std::string> to_strings(const std::vector<std::string_view>& views) {
  return {views.begin(), views.end()};
}

class GlueTask : public sentences::SentenceTask {
 public:
  GlueTask(const TaskDescription& description, const TaskOptions& options)
      : SentenceTask(std::string(description.name),
                     in_model_order(to_strings(description.label_names), options.model_labels),
                     description.sentences.size() == 2, description.metrics),
        description_(description),
        tables_(options.tables),
        open_rows_(options.open_rows) {
    for (const std::string_view label : description.label_names) {
      const auto found = std::find(label_names().begin(), label_names().end(), label);
      ids_.push_back(static_cast<std::int32_t>(found - label_names().begin()));
    }
  }

  std::size_t parts(Split split) const override { return files(split).size(); }
  std::string part_name(const DataPart& part) const override {
    return std::string(file(part).part);
  }
  std::string file_name(const DataPart& part) const override {
    return std::string(file(part).name);
  }
  std::vector<std::filesystem::path> input_files(
      const DataPart& part, const std::filesystem::path& data_dir) const override {
    if (tables_ != nullptr) return tables_->files(part);
    if (open_rows_) return {};
    return {path_of(part, data_dir)};
  }

 private:
  const std::vector<TaskFile>& files(Split split) const {
    switch (split) {
      case Split::kTrain:
        return description_.train_files;
      case Split::kDev:
        return description_.dev_files;
      case Split::kTest:
        return description_.test_files;
    }
    TW_CHECK(false, "unknown split {}", static_cast<int>(split));
  }
  const TaskFile& file(const DataPart& part) const {
    const std::vector<TaskFile>& all = files(part.split);
    if (all.empty()) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("task \"{}\" has a test split only, expected a prediction with a "
                                "trained model",
                                name()));
    }
    return all.at(part.part);
  }

  std::filesystem::path path_of(const DataPart& part, const std::filesystem::path& data_dir) const {
    const TaskFile& file = this->file(part);
    std::error_code ignored;
    const std::filesystem::path other = data_dir / file.other_name;
    const bool use_other = !file.other_name.empty() &&
                           !std::filesystem::exists(data_dir / file.name, ignored) &&
                           std::filesystem::exists(other, ignored);
    return use_other ? other : data_dir / file.name;
  }

  bool has_rows(const DataPart& part, const std::filesystem::path& data_dir) const override {
    if (files(part.split).empty()) return false;
    std::error_code ignored;
    if (tables_ != nullptr) return tables_->has(part);
    return open_rows_ || std::filesystem::exists(path_of(part, data_dir), ignored);
  }

  std::unique_ptr<RowSource> open(const DataPart& part,
                                  const std::filesystem::path& data_dir) const {
    const std::filesystem::path path = path_of(part, data_dir);  // checks that the part exists
    if (open_rows_) return open_rows_(part, hub_columns(part));
    std::error_code ignored;
    if (!std::filesystem::is_directory(data_dir, ignored)) {
      const bool is_present = std::filesystem::exists(data_dir, ignored);
      throw Failure(
          ExitCode::kData,
          fmt::format("{}: {}, expected the data directory with {} in it", data_dir.string(),
                      is_present ? "is a file" : "no such directory", path.filename().string()));
    }
    return std::make_unique<TsvRows>(
        path, TsvOptions{.headerless_fields = has_header(part) ? 0 : description_.headerless_fields,
                         .allow_ragged = description_.skips_incomplete_rows});
  }

  std::string_view hub_sentence(std::size_t i) const {
    return description_.hub_sentences.empty() ? description_.sentences[i].name
                                              : description_.hub_sentences[i];
  }
  columnar::Selection hub_columns(const DataPart& part) const {
    columnar::Selection columns{{}, {std::string(kHubIndex)}};
    for (std::size_t i = 0; i < description_.sentences.size(); ++i) {
      columns.required.emplace_back(hub_sentence(i));
    }
    if (part.split != Split::kTest) columns.required.emplace_back(kHubLabel);
    return columns;
  }

  bool has_header(const DataPart& part) const {
    return description_.headerless_fields == 0 || part.split == Split::kTest;
  }

  struct Column {
    std::string name;
    std::size_t index = 0;
  };
  Column find(const RowSource& rows, const DataPart& part, const TaskColumn& column,
              std::string_view hub_name) const {
    if (open_rows_) return {std::string(hub_name), rows.column(hub_name)};
    if (!has_header(part)) return {std::string(column.name), column.index};
    return {std::string(column.name), rows.column(column.name)};
  }

  Examples read_examples(const DataPart& part, const std::filesystem::path& data_dir,
                         std::size_t max_rows) const override {
    const std::unique_ptr<RowSource> rows = open(part, data_dir);
    std::vector<Column> columns;
    for (std::size_t i = 0; i < description_.sentences.size(); ++i) {
      columns.push_back(find(*rows, part, description_.sentences[i], hub_sentence(i)));
    }
    const bool has_labels = part.split != Split::kTest;
    if (has_labels) columns.push_back(find(*rows, part, description_.label, kHubLabel));
    const std::optional<std::size_t> index =
        open_rows_ ? rows->find_column(kHubIndex) : std::nullopt;

    Examples examples;
    Skipped incomplete;
    Skipped unlabelled;
    std::vector<Value> values(columns.size());
    for (std::int64_t row = 0; rows->next(); ++row) {
      for (std::size_t i = 0; i < columns.size(); ++i) values[i] = rows->value(columns[i].index);
      if (description_.skips_incomplete_rows && is_incomplete(values, has_labels)) {
        incomplete.add(*rows);
        continue;
      }
      if (has_labels && !description_.skipped_label.empty() &&
          values.back().text == description_.skipped_label) {
        unlabelled.add(*rows);
        continue;
      }
      Example example;
      example.first = sentence_of(*rows, columns[0].name, values[0]);
      if (is_pair()) example.second = sentence_of(*rows, columns[1].name, values[1]);
      if (has_labels && is_regression()) {
        example.value = number_of(*rows, columns.back().name, values.back());
      } else if (has_labels) {
        example.label = label_of(*rows, values.back().text);
      }
      examples.rows.push_back(std::move(example));
      examples.indices.push_back(index ? index_of(*rows, rows->value(*index)) : row);
      if (max_rows > 0 && examples.rows.size() == max_rows) break;
    }
    if (examples.rows.empty()) fail_without_rows(rows->name());
    incomplete.warn(*rows, "with missing fields", examples.warnings);
    unlabelled.warn(*rows, fmt::format("with the label \"{}\"", description_.skipped_label),
                    examples.warnings);
    return examples;
  }

  struct Skipped {
    std::size_t count = 0;
    std::string first;

    void add(const RowSource& rows) {
      if (count++ == 0) first = rows.location();
    }
    void warn(const RowSource& rows, const std::string& which,
              std::vector<std::string>& warnings) const {
      if (count == 0) return;
      warnings.push_back(fmt::format("{}: skipped {} {}, the first at {}", rows.name(),
                                     counted(count, "row"), which, first));
    }
  };

  static bool is_incomplete(const std::vector<Value>& values, bool has_labels) {
    const bool missing = std::any_of(values.begin(), values.end(), [](const Value& value) {
      return value.kind == ValueKind::kMissing;
    });
    return missing || (has_labels && values.back().text.empty());
  }

  // The label is given as its id or its name, in GLUE's order.
  std::int32_t label_of(const RowSource& rows, std::string_view text) const {
    std::string expected;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      const std::string number = std::to_string(i);
      if (text == number || text == description_.label_names[i]) return ids_[i];
      expected +=
          fmt::format("{}{} ({})", i == 0 ? "" : " or ", number, description_.label_names[i]);
    }
    rows.fail(fmt::format("the label is {}, expected {}", quoted_excerpt(text), expected));
  }

  static std::int64_t index_of(const RowSource& rows, const Value& value) {
    const auto index = parse_number<std::int64_t>(value.text);
    if (!index) {
      rows.fail(
          fmt::format("{} is {}, expected an integer", kHubIndex, quoted_excerpt(value.text)));
    }
    return *index;
  }

  std::string result_name(const DataPart& part) const override {
    const std::string distinction = part_name(part);
    return distinction.empty() ? name() : name() + "-" + distinction;
  }

  Submission submission(const DataPart& part) const override {
    Submission submission;
    submission.file = description_.submission_files.at(part.part);
    if (description_.submits_label_names) {
      submission.labels = label_names();
      return submission;
    }
    submission.labels.resize(ids_.size());
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      submission.labels[static_cast<std::size_t>(ids_[i])] = std::to_string(i);
    }
    return submission;
  }

  const TaskDescription& description_;  // in the constant list of tasks
  const std::shared_ptr<const DataTables> tables_;
  const RowOpener open_rows_;
  std::vector<std::int32_t> ids_;  // of the description's labels, in the task's order
};

}  // namespace

std::unique_ptr<const Task> make_task(std::string_view name, const TaskOptions& options) {
  for (const TaskDescription& description : task_descriptions()) {
    if (description.name == name) return std::make_unique<GlueTask>(description, options);
  }
  return nullptr;
}

}  // namespace tilewright::tasks::glue
