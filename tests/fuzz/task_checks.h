// What must hold for the data of any task.
#pragma once

#include "worker/tasks/task.h"

namespace tilewright::fuzz {

// Reads a part with a tokenizer of nine words, from the scratch directory if the task has no files
// of its own, and scores some logits. Aborts if labels or token ids are out of range. Throws
// Failure as Task::read().
void check_part(const tasks::Task& task, const tasks::DataPart& part);

}  // namespace tilewright::fuzz
