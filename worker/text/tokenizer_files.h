// Reads a tokenizer from the files of a Hugging Face model directory.
#pragma once

#include <filesystem>

#include "worker/text/tokenizer.h"

namespace tilewright::text {

// Reads tokenizer.json or, if it is missing, vocab.txt with the tokens added to it. In both cases
// do_lower_case, strip_accents, tokenize_chinese_chars and the token names in tokenizer_config.json
// take precedence; it also has model_max_length. Throws Failure with ExitCode::kModel for a missing
// directory or file, invalid JSON or UTF-8, a model other than WordPiece, a normaliser, template or
// class other than BERT's, an empty vocabulary, a duplicate entry or id, a missing special token, and
// a model_max_length below 1.
//
// Two differences from transformers 5 matter only for files written by hand: for a field that
// tokenizer_config.json lacks, tokenizer.json's normaliser applies (transformers 5: lower case),
// and max_input_chars_per_word is tokenizer.json's (100).
TokenizerSpec read_tokenizer_files(const std::filesystem::path& model_dir);

}  // namespace tilewright::text
