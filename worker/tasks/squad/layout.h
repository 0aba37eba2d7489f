// Tells files of question answering from other JSON files.
#pragma once

#include <filesystem>

namespace tilewright::tasks::squad {

// Whether a .json or .jsonl file is in a layout of read_json(): its first row has "paragraphs", or
// "question", "context" and "answers" and, unlike that of a classification, no "label". Reads the
// beginning of the file only. False for a file that cannot be read.
bool holds_questions(const std::filesystem::path& path);

}  // namespace tilewright::tasks::squad
