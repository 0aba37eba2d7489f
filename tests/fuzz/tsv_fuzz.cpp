#include "common/base/result.h"
#include "common/contract/tasks.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/harness.h"
#include "tests/fuzz/task_checks.h"
#include "worker/tasks/registry.h"

namespace tilewright::fuzz {

int fuzz_tsv(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = as_text(data, size);
  for (const std::string_view name : task_names()) {
    const auto task = tasks::make_task({.name = std::string(name)});
    try {
      for (const auto split : {tasks::Split::kTrain, tasks::Split::kDev, tasks::Split::kTest}) {
        for (std::size_t part = 0; part < task->parts(split); ++part) {
          write_scratch(task->file_name({split, part}), text);
        }
      }
      for (const auto split : {tasks::Split::kTest, tasks::Split::kTrain}) {
        if (task->parts(split) > 0) check_part(*task, {split, 0});
      }
      (void)task->baselines(scratch_directory(), 0);
    } catch (const Failure& failure) {
      check_message(failure.what());
    }
  }
  return 0;
}

}  // namespace tilewright::fuzz
