// Reads a tokenizer from the files of a Hugging Face model folder.
#pragma once

#include <filesystem>

#include "worker/text/tokenizer.h"

namespace tilewright::text {

// From tokenizer.json, or where there is none from vocab.txt; in both cases tokenizer_config.json's
// do_lower_case, strip_accents, tokenize_chinese_chars and token names are followed where it has
// them. Throws Failure with kModel: a missing folder or file, JSON or UTF-8 that is none, a model
// that is no WordPiece, other normalisers or templates than BERT's, an empty vocabulary, an entry
// or id that comes twice, a special token missing.
TokenizerSpec read_tokenizer_files(const std::filesystem::path& model_dir);

}  // namespace tilewright::text
