#include "tests/fuzz/task_checks.h"

#include "common/base/check.h"
#include "tests/fuzz/fuzz_input.h"

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

}  // namespace

void check_part(const tasks::Task& task, const tasks::DataPart& part) {
  static const text::Tokenizer tokenizer = make_tokenizer();
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
  tasks::check_ids(dataset, tokenizer.vocab_size(), 2, "config.json");
  if (part.split == tasks::Split::kTrain) return;  // not scored
  const std::size_t rows = answers ? dataset.tokens() : dataset.size();
  std::vector<float> logits(rows * static_cast<std::size_t>(task.num_labels()));
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 5);
  (void)task.score(part, logits, dataset);
}

}  // namespace tilewright::fuzz
