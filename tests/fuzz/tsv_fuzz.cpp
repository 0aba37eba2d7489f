#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "worker/tasks/registry.h"

namespace tilewright::fuzz {
namespace {

text::Tokenizer make_tokenizer() {
  text::TokenizerSpec spec;
  for (const char* word : {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "the", "."}) {
    spec.vocabulary.emplace_back(word, static_cast<std::int32_t>(spec.vocabulary.size()));
  }
  spec.special = {.cls = 2, .sep = 3, .pad = 0, .unk = 1, .mask = 4};
  return text::Tokenizer(spec);
}

void check_part(const tasks::Task& task, const tasks::DataPart& part,
                const text::Tokenizer& tokenizer) {
  const tasks::Dataset dataset = task.read(part, tokenizer, {scratch_directory(), 16, 0, {}});
  const bool regression = task.head() == nn::Head::kRegression;
  const bool answers = task.head() == nn::Head::kQuestionAnswering;
  const bool labelled = part.split != tasks::Split::kTest;
  const std::size_t values = regression ? dataset.values.size() : dataset.labels.size();
  TW_CHECK(!labelled || values == dataset.size(), "{} labels of {} examples", values,
           dataset.size());
  for (std::size_t i = 0; i < dataset.labels.size(); ++i) {
    const auto classes = answers ? dataset.length(i) : static_cast<std::size_t>(task.num_labels());
    TW_CHECK(dataset.labels[i] >= 0 && static_cast<std::size_t>(dataset.labels[i]) < classes,
             "label {} of {}", dataset.labels[i], classes);
  }
  tasks::check_ids(dataset, tokenizer.vocab_size());
  const std::size_t rows = answers ? dataset.tokens() : dataset.size();
  std::vector<float> logits(rows * static_cast<std::size_t>(task.num_labels()));
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 5);
  (void)task.score(part, logits, dataset);
}

}  // namespace

int fuzz_tsv(const std::uint8_t* data, std::size_t size) {
  static const text::Tokenizer tokenizer = make_tokenizer();
  const std::string_view text = as_text(data, size);
  for (const std::string& name : tasks::task_names()) {
    const auto task = tasks::find_task(name);
    try {
      for (const auto split : {tasks::Split::kTrain, tasks::Split::kDev, tasks::Split::kTest}) {
        for (std::size_t part = 0; part < task->parts(split); ++part) {
          write_scratch(task->file_name({split, part}), text);
        }
      }
      for (const auto split : {tasks::Split::kTest, tasks::Split::kTrain}) {
        if (task->parts(split) > 0) check_part(*task, {split, 0}, tokenizer);
      }
      (void)task->baselines(scratch_directory());
    } catch (const Failure& failure) {
      check_message(failure.what());
    }
  }
  return 0;
}

}  // namespace tilewright::fuzz
