// Compares the examples that the GLUE tasks read from the public files with the reference's hashes,
// and checks their baselines.
#include <gtest/gtest.h>

#include <cstdlib>
#include <map>
#include <string>

#include "tests/golden/text/golden.h"
#include "worker/tasks/registry.h"
#include "worker/text/tokenizer.h"

namespace tilewright::tasks {
namespace {

using testing::SequenceHash;

const std::map<std::string, std::string> kDirectories = {
    {"mrpc", "MRPC"}, {"sst2", "SST-2"}, {"cola", "CoLA"}, {"rte", "RTE"}};

TEST(Examples, EqualTheReferenceForEveryTask) {
  TILEWRIGHT_NEEDS(testing::model_dir() / "tokenizer.json", "TILEWRIGHT_MODEL_DIR");
  TILEWRIGHT_NEEDS(testing::data_dir() / "glue", "TILEWRIGHT_DATA_DIR");
  const text::Tokenizer tokenizer = text::Tokenizer::load(testing::model_dir());
  const auto golden = testing::golden_hashes().at("files");
  for (const auto& [name, directory] : kDirectories) {
    const auto task = make_task({.name = std::string(name)});
    for (const Split split : {Split::kTrain, Split::kDev}) {
      const Dataset data =
          task->read({split}, tokenizer,
                     {.data_dir = testing::data_dir() / "glue" / directory, .max_seq_length = 128});
      SequenceHash hash;
      for (std::size_t example = 0; example < data.size(); ++example) {
        hash.sequence(data.ids_of(example));
        hash.sequence(testing::token_types(data.length(example), data.first_segment_of(example)));
      }
      const std::string file = "glue/" + directory + "/" + task->file_name({split});
      EXPECT_EQ(hash.hex(), golden.at(file).at("examples").get<std::string>()) << file;
      EXPECT_EQ(data.labels.size(), data.size());
    }
  }
}

// Expected values were computed in Python from the same files: majority class 0.68382 and 0.52708;
// word overlap 0.723 and 0.513, with words matched by \w+, which splits slightly differently.
TEST(Baselines, EqualTheValuesComputedInPython) {
  TILEWRIGHT_NEEDS(testing::data_dir() / "glue", "TILEWRIGHT_DATA_DIR");
  const auto mrpc = make_task({.name = "mrpc"})->baselines(testing::data_dir() / "glue/MRPC", 0);
  ASSERT_EQ(mrpc.size(), 2U);
  EXPECT_NEAR(mrpc[0].metrics[0].second, 279.0 / 408.0, 1e-12);
  EXPECT_NEAR(mrpc[1].metrics[0].second, 0.723, 0.02);
  const auto rte = make_task({.name = "rte"})->baselines(testing::data_dir() / "glue/RTE", 0);
  ASSERT_EQ(rte.size(), 2U);
  EXPECT_NEAR(rte[0].metrics[0].second, 146.0 / 277.0, 1e-12);
  EXPECT_NEAR(rte[1].metrics[0].second, 0.513, 0.03);
}

}  // namespace
}  // namespace tilewright::tasks
