#include "worker/hub/parquet_splits.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "common/base/result.h"

namespace tilewright::hub {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

SplitFiles splits_of(const std::vector<std::string>& files, const std::string& config = "") {
  return find_parquet_splits(files, config, "name").splits;
}

std::string message_of(const std::vector<std::string>& files, const std::string& config = "") {
  try {
    splits_of(files, config);
  } catch (const Failure& failure) {
    EXPECT_EQ(failure.code(), ExitCode::kData);
    return failure.what();
  }
  return "";
}

TEST(ParquetSplits, AreNamedAsTheDatasetsLibraryNamesThem) {
  EXPECT_THAT(splits_of({"c/train-00000-of-00001.parquet", "c/test-00000-of-00001.parquet"}),
              ElementsAre(Pair("test", ElementsAre("c/test-00000-of-00001.parquet")),
                          Pair("train", ElementsAre("c/train-00000-of-00001.parquet"))));
  EXPECT_THAT(
      splits_of({"c/train-00000-of-00001-0123456789abcdef.parquet"}),
      ElementsAre(Pair("train", ElementsAre("c/train-00000-of-00001-0123456789abcdef.parquet"))));
  EXPECT_THAT(splits_of({"c/train.parquet", "c/validation_matched.parquet"}),
              ElementsAre(Pair("train", ElementsAre("c/train.parquet")),
                          Pair("validation_matched", ElementsAre("c/validation_matched.parquet"))));
  // The branch refs/convert/parquet of the hub.
  EXPECT_THAT(
      splits_of({"c/train/0001.parquet", "c/train/0000.parquet"}),
      ElementsAre(Pair("train", ElementsAre("c/train/0000.parquet", "c/train/0001.parquet"))));
}

TEST(ParquetSplits, AreInTheOrderOfTheirShards) {
  EXPECT_THAT(splits_of({"c/train-00002-of-00003.parquet", "c/train-00000-of-00003.parquet",
                         "c/train-00001-of-00003.parquet"}),
              ElementsAre(Pair("train", ElementsAre("c/train-00000-of-00003.parquet",
                                                    "c/train-00001-of-00003.parquet",
                                                    "c/train-00002-of-00003.parquet"))));
}

TEST(ParquetSplits, AtTheTopOrInDataBelongToTheDefaultConfiguration) {
  for (const char* config : {"", "default"}) {
    EXPECT_EQ(splits_of({"data/train-00000-of-00001.parquet", "README.md"}, config).size(), 1U);
    EXPECT_EQ(splits_of({"train.parquet", "other/notes.csv"}, config).size(), 1U);
  }
}

TEST(ParquetSplits, WithMissingShardsAreAnError) {
  EXPECT_EQ(message_of({"c/train-00000-of-00003.parquet", "c/train-00002-of-00003.parquet"}),
            "data set name, configuration c: found 2 shards of the split train, expected 3");
  EXPECT_NE(message_of({"c/train-00001-of-00001.parquet"}), "");
  EXPECT_NE(message_of({"c/train-00000-of-00000.parquet"}), "");
}

TEST(ParquetSplits, NeedParquetFilesOfTheConfiguration) {
  EXPECT_THAT(message_of({"README.md", "c/train.csv"}), HasSubstr("found no Parquet file among 2"));
  EXPECT_THAT(message_of({}), HasSubstr("found no Parquet file"));
  EXPECT_EQ(message_of({"a/train.parquet", "b/train.parquet"}, "c"),
            "data set name: found the configuration \"c\", expected one of a, b");
}

}  // namespace
}  // namespace tilewright::hub
