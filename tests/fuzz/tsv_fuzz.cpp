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

void check_task(const tasks::Task& task, const text::Tokenizer& tokenizer) {
  const tasks::Dataset dataset =
      task.read(tasks::Split::kTrain, tokenizer, {scratch_directory(), 16, 0});
  const std::size_t values = task.is_regression() ? dataset.targets.size() : dataset.labels.size();
  TW_CHECK(values == dataset.size(), "{} labels of {} examples", values, dataset.size());
  for (const std::int32_t label : dataset.labels) {
    TW_CHECK(label >= 0 && label < task.num_labels(), "label {}", label);
  }
  tasks::check_ids(dataset, tokenizer.vocab_size());
  const std::size_t outputs = static_cast<std::size_t>(task.num_labels());
  std::vector<float> logits(dataset.size() * outputs);
  for (std::size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i * 7 % 5);
  (void)task.metrics(logits, dataset);
}

}  // namespace

int fuzz_tsv(const std::uint8_t* data, std::size_t size) {
  static const text::Tokenizer tokenizer = make_tokenizer();
  const std::string_view text = as_text(data, size);
  for (const std::string& name : tasks::task_names()) {
    const auto task = tasks::find_task(name);
    try {
      for (const auto split : {tasks::Split::kTrain, tasks::Split::kDev}) {
        write_scratch(task->file_name(split), text);
      }
      check_task(*task, tokenizer);
      (void)task->baselines(scratch_directory());
    } catch (const Failure& failure) {
      check_message(failure.what());
    }
  }
  return 0;
}

}  // namespace tilewright::fuzz
