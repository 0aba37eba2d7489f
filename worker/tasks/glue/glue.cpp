#include "worker/tasks/glue/glue.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "common/base/check.h"
#include "common/base/result.h"
#include "worker/tasks/glue/baselines.h"
#include "worker/tasks/glue/tsv.h"

namespace tilewright::tasks::glue {
namespace {

enum class Metric { kAccuracy, kF1, kMatthews };

// Where a value stands: under a name in the header or, without one, at an index.
struct Column {
  std::string_view name;
  std::size_t index = 0;
};

struct GlueSpec {
  std::string name;
  std::vector<std::string> label_names;
  std::size_t headless_fields;  // 0: there is a header
  Column label;
  std::vector<Column> sentences;  // one or two
  std::vector<Metric> metrics;
};

class GlueTask : public Task {
 public:
  explicit GlueTask(GlueSpec spec) : spec_(std::move(spec)) {}

  const std::string& name() const override { return spec_.name; }
  const std::vector<std::string>& label_names() const override { return spec_.label_names; }
  int num_labels() const override { return static_cast<int>(spec_.label_names.size()); }
  std::string file_name(Split split) const override {
    return split == Split::kTrain ? "train.tsv" : "dev.tsv";
  }

  Dataset read(Split split, const text::Tokenizer& tokenizer,
               const ReadOptions& options) const override {
    if (options.max_seq_length < 3) {
      throw Failure(ExitCode::kUsage,
                    fmt::format("max_seq_length is {}, expected at least 3 for [CLS] and two [SEP]",
                                options.max_seq_length));
    }
    Dataset dataset;
    for (const Example& example : examples(split, options.data_dir, options.max_samples)) {
      dataset.append(
          is_pair() ? tokenizer.encode_pair(example.first, example.second, options.max_seq_length)
                    : tokenizer.encode(example.first, options.max_seq_length));
      dataset.labels.push_back(example.label);
    }
    return dataset;
  }

  Metrics metrics(std::span<const float> logits, const Dataset& dataset) const override {
    TW_CHECK(logits.size() == dataset.size() * label_names().size(), "{} logits for {} examples",
             logits.size(), dataset.size());
    return score(predictions_of(logits, num_labels()), dataset.labels);
  }

  std::vector<Baseline> baselines(const std::filesystem::path& data_dir) const override {
    const std::vector<Example> train = examples(Split::kTrain, data_dir, 0);
    const std::vector<Example> dev = examples(Split::kDev, data_dir, 0);
    std::vector<std::int32_t> labels;
    labels.reserve(dev.size());
    for (const Example& example : dev) labels.push_back(example.label);
    std::vector<Baseline> found = {{"majority class", score(majority_class(train, dev), labels)}};
    if (is_pair() && num_labels() == 2) {
      found.push_back({"word overlap", score(overlap_rule(train, dev), labels)});
    }
    return found;
  }

 private:
  bool is_pair() const { return spec_.sentences.size() == 2; }

  std::vector<Example> examples(Split split, const std::filesystem::path& data_dir,
                                std::size_t max_samples) const {
    const Tsv tsv(data_dir / file_name(split), spec_.headless_fields, max_samples);
    const auto place = [&](const Column& column) {
      return spec_.headless_fields > 0 ? column.index : tsv.column(column.name);
    };
    const std::size_t label = place(spec_.label);
    const std::size_t first = place(spec_.sentences.front());
    const std::size_t second = place(spec_.sentences.back());
    std::vector<Example> examples;
    examples.reserve(tsv.rows().size());
    for (const TsvRow& row : tsv.rows()) {
      examples.push_back({std::string(row.fields[first]),
                          is_pair() ? std::string(row.fields[second]) : std::string(),
                          label_of(tsv, row.line, row.fields[label])});
    }
    return examples;
  }

  // A label is its number or its name.
  std::int32_t label_of(const Tsv& tsv, std::size_t line, std::string_view text) const {
    std::string expected;
    for (std::size_t id = 0; id < spec_.label_names.size(); ++id) {
      const std::string number = std::to_string(id);
      if (text == number || text == spec_.label_names[id]) return static_cast<std::int32_t>(id);
      expected += fmt::format("{}{} ({})", id == 0 ? "" : " or ", number, spec_.label_names[id]);
    }
    tsv.fail(line, fmt::format("the label is \"{}\", expected {}", text.substr(0, 60), expected));
  }

  // As run_glue reports them: where there are several, their mean is the combined_score.
  Metrics score(std::span<const std::int32_t> predictions,
                std::span<const std::int32_t> labels) const {
    Metrics found;
    for (const Metric metric : spec_.metrics) {
      switch (metric) {
        case Metric::kAccuracy:
          found.emplace_back("accuracy", accuracy(predictions, labels));
          break;
        case Metric::kF1:
          found.emplace_back("f1", f1(predictions, labels));
          break;
        case Metric::kMatthews:
          found.emplace_back("matthews_correlation", matthews_correlation(predictions, labels));
          break;
      }
    }
    if (found.size() > 1) {
      double sum = 0;
      for (const auto& [name, value] : found) sum += value;
      found.emplace_back("combined_score", sum / static_cast<double>(found.size()));
    }
    return found;
  }

  GlueSpec spec_;
};

}  // namespace

std::vector<std::unique_ptr<const Task>> make_tasks() {
  const std::vector<GlueSpec> specs = {
      {.name = "mrpc",
       .label_names = {"not_equivalent", "equivalent"},
       .headless_fields = 0,
       .label = {"Quality"},
       .sentences = {{"#1 String"}, {"#2 String"}},
       .metrics = {Metric::kAccuracy, Metric::kF1}},
      {.name = "sst2",
       .label_names = {"negative", "positive"},
       .headless_fields = 0,
       .label = {"label"},
       .sentences = {{"sentence"}},
       .metrics = {Metric::kAccuracy}},
      {.name = "cola",
       .label_names = {"unacceptable", "acceptable"},
       .headless_fields = 4,
       .label = {"", 1},
       .sentences = {{"", 3}},
       .metrics = {Metric::kMatthews}},
      {.name = "rte",
       .label_names = {"entailment", "not_entailment"},
       .headless_fields = 0,
       .label = {"label"},
       .sentences = {{"sentence1"}, {"sentence2"}},
       .metrics = {Metric::kAccuracy}},
  };
  std::vector<std::unique_ptr<const Task>> tasks;
  tasks.reserve(specs.size());
  for (const GlueSpec& spec : specs) tasks.push_back(std::make_unique<GlueTask>(spec));
  return tasks;
}

}  // namespace tilewright::tasks::glue
