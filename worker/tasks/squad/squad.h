// The tasks `squad` and `squad_v2`: extractive question answering.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "worker/tasks/squad/examples.h"
#include "worker/tasks/squad/features.h"
#include "worker/tasks/squad/postprocess.h"
#include "worker/tasks/task.h"
#include "worker/tasks/task_options.h"

namespace tilewright::tasks::squad {

// What predictions are scored with.
struct SquadSource : Source {
  Examples examples;
  Features features;  // without the tokens, which the data set has
  QuestionAnsweringOptions options;
};

// The data set of questions from any source: JSON files or a table in memory. `source` names it in
// messages. Throws as make_features, and Failure(kData) if `split` is kDev, the options have no
// version_2_with_negative, and a question has no answers: the metrics are not defined then. A test
// split without any answer has no labels. max_samples limits the questions and then, as run_qa
// does, the features.
Dataset make_dataset(Examples examples, Split split, const text::Tokenizer& tokenizer,
                     const ReadOptions& options, const std::string& source);

// The answers to the questions of a data set from make_dataset(), one per question. `logits`: as in
// postprocess().
std::vector<Prediction> predictions_of(std::span<const float> logits, const Dataset& dataset);

// The task of the name, with the options' files or tables in place of the data directory's; null if
// it is no task of question answering.
std::unique_ptr<const Task> make_task(std::string_view name, const TaskOptions& options);

// The questions of tables with the columns of the hub's data sets `squad` and `squad_v2`. Throws
// Failure(kData).
Examples read_tables(std::span<const columnar::Table> tables, std::size_t max_questions = 0);

}  // namespace tilewright::tasks::squad
