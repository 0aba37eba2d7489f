// Reads a tokenizer from the files of a Hugging Face model directory.
#pragma once

#include <filesystem>

#include "worker/text/tokenizer.h"

namespace tilewright::text {

// Reads tokenizer.json or, if it is missing, vocab.txt with the tokens added to it, as
// AutoTokenizer.from_pretrained() of transformers 4.57 does:
// - Of the classes BertTokenizer and DistilBertTokenizer, which a file without tokenizer_class has,
//   the normaliser is that of do_lower_case, strip_accents and tokenize_chinese_chars in
//   tokenizer_config.json or their defaults, whatever tokenizer.json says. Of the class
//   PreTrainedTokenizerFast (TokenizersBackend in transformers 5) it is tokenizer.json's.
// - The token names in tokenizer_config.json take precedence; before them those of
//   special_tokens_map.json, unless tokenizer_config.json has added_tokens_decoder.
// - The limit is model_max_length or, by its old name, max_len.
// Throws Failure with ExitCode::kModel for a missing directory or file, invalid JSON or UTF-8, a
// model other than WordPiece, a normaliser, template or class other than BERT's, truncation or
// padding on the left, an empty vocabulary, a duplicate entry or id, a missing special token, and a
// model_max_length below 1.
TokenizerSpec read_tokenizer_files(const std::filesystem::path& model_dir);

// The name of the class in tokenizer_config.json, else in config.json.
inline constexpr const char* kTokenizerClass = "tokenizer_class";

}  // namespace tilewright::text
