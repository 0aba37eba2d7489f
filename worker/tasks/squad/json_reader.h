// Reads questions from JSON files.
#pragma once

#include <cstddef>
#include <filesystem>

#include "worker/tasks/squad/examples.h"

namespace tilewright::tasks::squad {

constexpr std::size_t kMaxLineBytes = std::size_t{1} << 20;  // of JSON lines

// Reads a file in one of these layouts:
//   {"data": [{"paragraphs": [{"context": ..., "qas": [{"id": ..., "question": ...,
//                                                       "answers": ...}]}]}]}   as published
//   {"data": [ROW, ...]}, [ROW, ...], or one ROW per line (JSON lines), where ROW is
//   {"id": ..., "context": ..., "question": ..., "answers": ...}
// Answers are {"text": [...], "answer_start": [...]} or [{"text": ..., "answer_start": ...}, ...];
// other members are ignored. `max_questions` > 0: ignores the questions after them.
// `needs_answers`: one question at least must have the member "answers", which may be null or
// empty. Throws Failure(kData) with one sentence: file, line or question, what was found, what was
// expected.
Examples read_json(const std::filesystem::path& path, std::size_t max_questions = 0,
                   bool needs_answers = false);

}  // namespace tilewright::tasks::squad
