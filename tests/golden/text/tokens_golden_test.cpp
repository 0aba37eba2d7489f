// Compares token ids of real files and of random strings, with the real vocabulary, with the
// reference's hashes.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "tests/golden/text/fuzz.h"
#include "tests/golden/text/golden.h"
#include "worker/text/tokenizer.h"
#include "worker/text/tokenizer_files.h"
#include "worker/text/utf8.h"

namespace tilewright::text {
namespace {

using testing::SequenceHash;

constexpr int kStrings = 5000;
constexpr int kStringsPerHash = 100;

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  std::string part;
  for (std::istringstream in(text); std::getline(in, part, at);) parts.push_back(part);
  return parts;
}

std::string hash_of_texts(const Tokenizer& tokenizer, const std::vector<std::string>& texts) {
  SequenceHash hash;
  std::vector<std::int32_t> ids;
  for (const std::string& text : texts) {
    ids.clear();
    tokenizer.tokenize(text, ids);
    hash.sequence(ids);
  }
  return hash.hex();
}

TEST(TokenIds, EqualTheReferenceForEveryLine) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  TILEWRIGHT_NEEDS(testing::data_dir() / "glue", "TILEWRIGHT_DATA_DIR");
  const Tokenizer tokenizer = Tokenizer::load(testing::model_dir());
  int files = 0;
  const auto all = testing::golden_hashes().at("files");
  for (const auto& [name, golden] : all.items()) {
    if (!golden.contains("lines")) continue;
    const std::vector<std::string> lines =
        split(testing::read_text(testing::data_dir() / name), '\n');
    EXPECT_EQ(lines.size(), golden.at("sequences").get<std::size_t>()) << name;
    EXPECT_EQ(hash_of_texts(tokenizer, lines), golden.at("lines").get<std::string>()) << name;
    ++files;
  }
  EXPECT_EQ(files, 8);
}

TEST(TokenIds, EqualTheReferenceForContextsAndQuestions) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  TILEWRIGHT_NEEDS(testing::data_dir() / "squad/xquad.en.json", "TILEWRIGHT_DATA_DIR");
  const Tokenizer tokenizer = Tokenizer::load(testing::model_dir());
  const auto squad =
      nlohmann::json::parse(testing::read_text(testing::data_dir() / "squad/xquad.en.json"));
  std::vector<std::string> texts;
  for (const auto& article : squad.at("data")) {
    for (const auto& paragraph : article.at("paragraphs")) {
      texts.push_back(paragraph.at("context"));
      for (const auto& question : paragraph.at("qas")) texts.push_back(question.at("question"));
    }
  }
  const auto golden = testing::golden_hashes().at("files").at("squad/xquad.en.json");
  EXPECT_EQ(texts.size(), golden.at("sequences").get<std::size_t>());
  EXPECT_EQ(hash_of_texts(tokenizer, texts), golden.at("texts").get<std::string>());
}

TEST(FuzzedStrings, EqualTheStringsOfTheReference) {
  SequenceHash hash;
  for (int seed = 0; seed < kStrings; ++seed) {
    const std::string text = testing::fuzz_string(static_cast<std::uint64_t>(seed));
    ASSERT_EQ(find_invalid_utf8(text), std::nullopt) << seed;
    hash.text(text);
  }
  EXPECT_EQ(hash.hex(), testing::golden_hashes().at("fuzz").at("strings").get<std::string>());
}

TEST(FuzzedStrings, HaveTheReferenceTokensForEverySetOfOptions) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  const std::map<std::string, std::function<void(NormaliserOptions&)>> sets = {
      {"as_configured", [](NormaliserOptions&) {}},
      {"cased", [](NormaliserOptions& options) { options.lowercase = false; }},
      {"accents_kept", [](NormaliserOptions& options) { options.strip_accents = false; }},
      {"bare", [](NormaliserOptions& options) {
         options = {.clean_text = false,
                    .handle_chinese_chars = false,
                    .strip_accents = true,
                    .lowercase = false};
       }}};
  const auto golden = testing::golden_hashes().at("fuzz");
  for (const auto& [name, change] : sets) {
    TokenizerSpec spec = read_tokenizer_files(testing::model_dir());
    change(spec.normaliser);
    const Tokenizer tokenizer(spec);
    for (int first = 0; first < kStrings; first += kStringsPerHash) {
      std::vector<std::string> texts;
      texts.reserve(kStringsPerHash);
      for (int i = first; i < first + kStringsPerHash; ++i) {
        texts.push_back(testing::fuzz_string(static_cast<std::uint64_t>(i)));
      }
      const int hash = first / kStringsPerHash;
      EXPECT_EQ(hash_of_texts(tokenizer, texts), golden.at(name).at(static_cast<std::size_t>(hash)))
          << name << ", strings from " << first;
    }
  }
}

TEST(FuzzedStrings, HaveTheReferenceTokensAsTruncatedPairs) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  const Tokenizer tokenizer = Tokenizer::load(testing::model_dir());
  SequenceHash hash;
  for (std::uint64_t k = 0; k < kStrings / 2; ++k) {
    const Encoding pair = tokenizer.encode_pair(testing::fuzz_string(2 * k),
                                                testing::fuzz_string(2 * k + 1), 3 + k % 60);
    hash.sequence(pair.ids);
    hash.sequence(testing::token_types(pair.ids.size(), pair.first_segment));
  }
  EXPECT_EQ(hash.hex(), testing::golden_hashes().at("fuzz").at("pairs").get<std::string>());
}

}  // namespace
}  // namespace tilewright::text
