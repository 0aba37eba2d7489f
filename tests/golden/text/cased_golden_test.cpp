// Compares token ids of a cased vocabulary, which has no tokenizer.json, with those of
// transformers' BertTokenizerFast. write_cased_tokens.py writes the vocabulary and the ids.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/golden/text/fuzz.h"
#include "tests/golden/text/golden.h"
#include "worker/text/tokenizer.h"

namespace tilewright::text {
namespace {

using Ids = std::vector<std::int32_t>;

std::filesystem::path folder() { return testing::source_dir() / "tests/golden/text/data/cased"; }

nlohmann::json golden() {
  return nlohmann::json::parse(testing::read_text(folder() / "tokens.json"));
}

TEST(CasedVocabulary, HasTheReferenceTokens) {
  const Tokenizer tokenizer = Tokenizer::load(folder());
  const nlohmann::json texts = golden().at("texts");
  for (const auto& one : texts) {
    Ids ids;
    tokenizer.tokenize(one.at("text").get<std::string>(), ids);
    EXPECT_EQ(ids, one.at("ids").get<Ids>()) << one.at("text");
  }
  EXPECT_GT(texts.size(), 10u);
}

TEST(CasedVocabulary, HasTheReferencePairs) {
  const Tokenizer tokenizer = Tokenizer::load(folder());
  const nlohmann::json pairs = golden().at("pairs");
  for (const auto& one : pairs) {
    const Encoding pair = tokenizer.encode_pair(one.at("texts").at(0).get<std::string>(),
                                                one.at("texts").at(1).get<std::string>(),
                                                one.at("max_length").get<std::size_t>());
    EXPECT_EQ(pair.ids, one.at("ids").get<Ids>()) << one;
    EXPECT_EQ(testing::token_types(pair.ids.size(), pair.first_segment), one.at("types").get<Ids>())
        << one;
  }
  EXPECT_EQ(pairs.size(), 3u);
}

TEST(CasedVocabulary, HasTheReferenceTokensOfRandomStrings) {
  const Tokenizer tokenizer = Tokenizer::load(folder());
  const nlohmann::json hashes = golden().at("fuzz");
  ASSERT_EQ(hashes.size(), 50u);
  for (std::size_t block = 0; block < hashes.size(); ++block) {
    testing::SequenceHash hash;
    for (std::uint64_t seed = block * 100; seed < (block + 1) * 100; ++seed) {
      Ids ids;
      tokenizer.tokenize(testing::fuzz_string(seed), ids);
      hash.sequence(ids);
    }
    EXPECT_EQ(hash.hex(), hashes[block].get<std::string>()) << "strings from " << block * 100;
  }
}

}  // namespace
}  // namespace tilewright::text
