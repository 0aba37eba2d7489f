// Small tokenizers and model directories for the tests of worker/text.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/paths.h"
#include "worker/text/tokenizer.h"

namespace tilewright::text {

// The id of a token is its index: [PAD] 0, [UNK] 1, [CLS] 2, [SEP] 3, [MASK] 4, then from 5.
inline const std::vector<std::string> kTinyVocabulary = {
    "[PAD]", "[UNK]", "[CLS]",  "[SEP]", "[MASK]",  // 0 to 4
    "un",    "##aff", "##able", "a",     "##a",     // 5 to 9
    "cafe",  "café",  "Cafe",   "文",    ",",       // 10 to 14
    "!",     "b",     "aff",    "##文",  "x"};      // 15 to 19

inline TokenizerSpec tiny_spec() {
  TokenizerSpec spec;
  for (const std::string& token : kTinyVocabulary) {
    spec.vocabulary.emplace_back(token, static_cast<std::int32_t>(spec.vocabulary.size()));
  }
  spec.special = {.cls = 2, .sep = 3, .pad = 0, .unk = 1, .mask = 4};
  for (std::int32_t id = 0; id < 5; ++id) {
    spec.added_tokens.push_back({.id = id, .content = kTinyVocabulary[static_cast<size_t>(id)]});
  }
  return spec;
}

inline std::vector<std::int32_t> ids_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  tokenizer.tokenize(text, ids);
  return ids;
}

// A model directory with the files that a test writes into it.
class ModelDirectory {
 public:
  void write(const std::string& name, const std::string& content) const {
    std::ofstream(directory_.path() / name, std::ios::binary) << content;
  }
  void write_vocab() const {
    std::string content;
    for (const std::string& token : kTinyVocabulary) content += token + "\n";
    write("vocab.txt", content);
  }
  // Writes tokenizer.json of the tiny vocabulary after applying `change`.
  template <typename Change>
  void write_json(const Change& change) const {
    nlohmann::json root = nlohmann::json::parse(R"({
      "added_tokens": [],
      "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true,
                     "strip_accents": null, "lowercase": true},
      "pre_tokenizer": {"type": "BertPreTokenizer"},
      "post_processor": {"type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                   {"Sequence": {"id": "A", "type_id": 0}},
                   {"SpecialToken": {"id": "[SEP]", "type_id": 0}}],
        "pair": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                 {"Sequence": {"id": "A", "type_id": 0}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                 {"Sequence": {"id": "B", "type_id": 1}},
                 {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]},
      "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##",
                "max_input_chars_per_word": 100, "vocab": {}}})");
    for (std::size_t id = 0; id < kTinyVocabulary.size(); ++id) {
      root["model"]["vocab"][kTinyVocabulary[id]] = id;
      if (id < 5) {
        root["added_tokens"].push_back({{"id", id}, {"content", kTinyVocabulary[id]}});
      }
    }
    change(root);
    write("tokenizer.json", root.dump());
  }
  void write_json() const {
    write_json([](nlohmann::json&) {});
  }
  const std::filesystem::path& path() const { return directory_.path(); }

 private:
  testing::TemporaryDirectory directory_;
};

}  // namespace tilewright::text
