#include "worker/text/tokenizer_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/result.h"
#include "tests/unit/worker/text/builders.h"

namespace tilewright::text {
namespace {

using Ids = std::vector<std::int32_t>;
using ::testing::AllOf;
using ::testing::HasSubstr;
using Json = nlohmann::json;

// The sentence of the Failure that reading the folder ends in.
std::string failure_of(const std::filesystem::path& folder) {
  try {
    read_tokenizer_files(folder);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kModel);
    return failure.what();
  }
  ADD_FAILURE() << "read without a failure";
  return "";
}

std::string failure_of_json(const std::function<void(Json&)>& change) {
  const ModelFolder folder;
  folder.write_json(change);
  return failure_of(folder.path());
}

TEST(TokenizerFiles, AVocabularyAloneMakesALowerCasingTokenizer) {
  const ModelFolder folder;
  folder.write_vocab();
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(ids_of(tokenizer, "CAFÉ [MASK]"), (Ids{10, 4}));
  EXPECT_EQ(tokenizer.special().cls, 2);
  EXPECT_EQ(tokenizer.special().pad, 0);
  EXPECT_EQ(tokenizer.vocab_size(), 20);
}

TEST(TokenizerFiles, TheConfigurationChangesTheVocabularysNormaliser) {
  const ModelFolder folder;
  folder.write_vocab();
  folder.write("tokenizer_config.json", R"({"do_lower_case": false})");
  EXPECT_EQ(ids_of(Tokenizer::load(folder.path()), "café Cafe"), (Ids{11, 12}));
  folder.write("tokenizer_config.json", R"({"strip_accents": false})");
  EXPECT_EQ(ids_of(Tokenizer::load(folder.path()), "CAFÉ"), (Ids{11}));
  folder.write("tokenizer_config.json", R"({"tokenize_chinese_chars": false})");
  EXPECT_EQ(ids_of(Tokenizer::load(folder.path()), "a文"), (Ids{8, 18}));
}

TEST(TokenizerFiles, TheConfigurationNamesSpecialTokens) {
  const ModelFolder folder;
  folder.write("vocab.txt", "<pad>\n<unk>\n<s>\n</s>\na\n");
  folder.write("tokenizer_config.json",
               R"({"pad_token": "<pad>", "unk_token": {"content": "<unk>"}, "cls_token": "<s>",
                   "sep_token": "</s>"})");
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer.encode("a z <s>").ids, (Ids{2, 4, 1, 2, 3}));
  EXPECT_EQ(tokenizer.special().mask, -1);
}

TEST(TokenizerFiles, ALastLineWithoutBreakAndWindowsBreaksAreFine) {
  const ModelFolder folder;
  folder.write("vocab.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\n\r\na");
  EXPECT_EQ(ids_of(Tokenizer::load(folder.path()), "a"), (Ids{5})) << "an empty line counts";
}

TEST(TokenizerFiles, TokenizerJsonIsPreferred) {
  const ModelFolder folder;
  folder.write("vocab.txt", "nonsense");
  folder.write_json();
  EXPECT_EQ(ids_of(Tokenizer::load(folder.path()), "unaffable"), (Ids{5, 6, 7}));
}

TEST(TokenizerFiles, TokenizerJsonsSettingsAreFollowed) {
  const ModelFolder folder;
  folder.write_json([](Json& root) {
    root["normalizer"]["lowercase"] = false;
    root["model"]["max_input_chars_per_word"] = 4;
    root["added_tokens"].push_back({{"id", 16}, {"content", "b"}, {"single_word", true}});
  });
  const Tokenizer tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(ids_of(tokenizer, "Cafe café unaffable b"), (Ids{12, 11, 1, 16}));
  folder.write("tokenizer_config.json", R"({"do_lower_case": true})");
  EXPECT_EQ(ids_of(Tokenizer::load(folder.path()), "CAFÉ"), (Ids{10})) << "which the config rules";
}

TEST(TokenizerFiles, BertProcessingIsTheSameTemplate) {
  const ModelFolder folder;
  folder.write_json([](Json& root) { root["post_processor"] = {{"type", "BertProcessing"}}; });
  EXPECT_EQ(Tokenizer::load(folder.path()).encode("a").ids, (Ids{2, 8, 3}));
}

TEST(TokenizerFiles, MissingFilesAreNamed) {
  EXPECT_THAT(failure_of("/nowhere/model"),
              AllOf(HasSubstr("/nowhere/model"), HasSubstr("no such folder")));
  const ModelFolder folder;
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("neither tokenizer.json nor vocab.txt"));
}

TEST(TokenizerFiles, AFaultyVocabularyIsRefusedWithItsLine) {
  const ModelFolder folder;
  folder.write("vocab.txt", "");
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("vocabulary is empty"));
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\nb\na\n");
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("line 7 repeats \"a\" of line 5"));
  folder.write("vocab.txt", "[PAD]\nab\xFF\n");
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("line 2 has invalid UTF-8 at its byte 3"));
  folder.write("vocab.txt", "[PAD]\n[UNK]\n[CLS]\na\n");
  EXPECT_THAT(failure_of(folder.path()),
              AllOf(HasSubstr("vocab.txt"), HasSubstr("special token [SEP] is missing")));
}

TEST(TokenizerFiles, OtherTokenizersAreRefused) {
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["type"] = "BPE"; }),
              AllOf(HasSubstr("tokenizer.json"), HasSubstr("model.type is \"BPE\""),
                    HasSubstr("expected \"WordPiece\"")));
  EXPECT_THAT(failure_of_json([](Json& root) { root["normalizer"]["type"] = "NFKC"; }),
              HasSubstr("normalizer.type is \"NFKC\", expected \"BertNormalizer\""));
  EXPECT_THAT(failure_of_json([](Json& root) { root["normalizer"] = nullptr; }),
              HasSubstr("normalizer.type is missing"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["pre_tokenizer"]["type"] = "ByteLevel"; }),
              HasSubstr("expected \"BertPreTokenizer\""));
  EXPECT_THAT(failure_of_json(
                  [](Json& root) { root["post_processor"]["pair"][3]["Sequence"]["type_id"] = 0; }),
              HasSubstr("post_processor.pair"));
}

TEST(TokenizerFiles, WrongTypesAndNumbersAreRefused) {
  EXPECT_THAT(failure_of_json([](Json& root) { root["normalizer"]["lowercase"] = "yes"; }),
              HasSubstr("normalizer.lowercase is \"yes\", expected true or false"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"]["a"] = -1; }),
              HasSubstr("model.vocab[\"a\"] is -1, expected a whole number"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"]["a"] = 7; }),
              HasSubstr("model.vocab gives id 7 to"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"] = Json::object(); }),
              HasSubstr("vocabulary is empty"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["model"]["vocab"] = Json::array(); }),
              HasSubstr("model.vocab is [], expected an object"));
  EXPECT_THAT(failure_of_json([](Json& root) { root["added_tokens"][0].erase("content"); }),
              HasSubstr("added_tokens[0].content is missing"));
}

TEST(TokenizerFiles, TheSameKeyTwiceInTokenizerJsonIsRefused) {
  const ModelFolder folder;
  folder.write("tokenizer.json", R"({"model": {"type": "WordPiece", "vocab": {"a": 1, "a": 2}}})");
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("model.vocab has \"a\" twice"));
}

TEST(TokenizerFiles, BrokenJsonIsRefusedWithItsByte) {
  const ModelFolder folder;
  folder.write("tokenizer.json", R"({"model": )");
  EXPECT_THAT(failure_of(folder.path()), AllOf(HasSubstr("is no JSON"), HasSubstr("byte 11")));
  folder.write("tokenizer.json", "[1]");
  EXPECT_THAT(failure_of(folder.path()), HasSubstr("the document is [1], expected an object"));
}

}  // namespace
}  // namespace tilewright::text
