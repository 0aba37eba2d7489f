#include <algorithm>

#include "common/base/check.h"
#include "common/base/result.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/task_checks.h"
#include "worker/tasks/registry.h"

namespace tilewright::fuzz {
namespace {

// The first file whose name begins with `prefix`; empty if there is none.
std::string find_file(const Files& files, std::string_view prefix) {
  const auto found =
      std::ranges::find_if(files, [&](const auto& file) { return file.first.starts_with(prefix); });
  return found == files.end() ? "" : (scratch_directory() / found->first).string();
}

void check_task(const tasks::TaskOptions& options) {
  try {
    const auto task = tasks::make_task(options);
    const bool answers = task->head() == nn::Head::kQuestionAnswering;
    TW_CHECK(answers || task->num_labels() == 1 ||
                 task->label_names().size() == static_cast<std::size_t>(task->num_labels()),
             "{} names of {} labels", task->label_names().size(), task->num_labels());
    const std::pair<const std::string*, tasks::Split> parts[] = {
        {&options.train_file, tasks::Split::kTrain},
        {&options.validation_file, tasks::Split::kDev},
        {&options.test_file, tasks::Split::kTest}};
    for (const auto& [file, split] : parts) {
      if (!file->empty()) check_part(*task, {split, 0});
    }
  } catch (const Failure& failure) {
    check_message(failure.what());
  }
}

}  // namespace

int fuzz_own_files(const std::uint8_t* data, std::size_t size) {
  const Files files = split_files(as_text(data, size));
  clear_scratch();
  for (const auto& [name, content] : files) write_scratch(name, content);
  tasks::TaskOptions options;
  options.train_file = find_file(files, "train");
  options.validation_file = find_file(files, "validation");
  options.test_file = find_file(files, "test");
  if (options.train_file.empty() && options.validation_file.empty() && options.test_file.empty()) {
    return 0;
  }
  for (const char* task : {"", "squad", "squad_v2"}) {
    options.name = task;
    check_task(options);
  }
  return 0;
}

}  // namespace tilewright::fuzz
