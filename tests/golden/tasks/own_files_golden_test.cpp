// Compares the examples of own CSV and JSON files with those of `datasets` and run_glue.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/support/paths.h"
#include "tests/unit/worker/text/builders.h"
#include "worker/tasks/registry.h"

namespace tilewright::tasks {
namespace {

using nlohmann::json;

json golden_tasks() {
  return json::parse(testing::read_text(testing::source_dir() / "tests/golden/tasks/tasks.json"));
}

void check_split(const Task& task, Split split, const json& expected) {
  const text::Tokenizer tokenizer(text::tiny_spec());
  const Dataset data = task.read({split}, tokenizer, {});
  ASSERT_EQ(data.size(), expected.size());
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto texts = expected[i].at("texts").get<std::vector<std::string>>();
    const text::Encoding encoding =
        texts.size() == 2 ? tokenizer.encode_pair(texts[0], texts[1]) : tokenizer.encode(texts[0]);
    const auto ids = data.ids_of(i);
    EXPECT_EQ(std::vector<std::int32_t>(ids.begin(), ids.end()), encoding.ids) << i;
    if (task.head() == nn::Head::kRegression) {
      EXPECT_EQ(data.values[i], expected[i].at("label").get<float>()) << i;
    } else {
      EXPECT_EQ(data.labels[i], expected[i].at("label").get<std::int32_t>()) << i;
    }
  }
}

TEST(OwnFiles, AreReadAsByRunGlue) {
  for (const auto& [name, expected] : golden_tasks().at("own_files").items()) {
    SCOPED_TRACE(name);
    const testing::TemporaryDirectory directory;
    for (const auto& [file, content] : expected.at("files").items()) {
      std::ofstream(directory.path() / file, std::ios::binary) << content.get<std::string>();
    }
    const std::string suffix = name.starts_with("json") ? ".json" : ".csv";
    TaskOptions options;
    options.train_file = directory.path() / ("train" + suffix);
    options.validation_file = directory.path() / ("dev" + suffix);
    const auto task = make_task(options);
    EXPECT_EQ(task->head() == nn::Head::kRegression, expected.at("regression").get<bool>());
    EXPECT_EQ(task->label_names(), expected.at("labels").get<std::vector<std::string>>());
    check_split(*task, Split::kTrain, expected.at("splits").at("train"));
    check_split(*task, Split::kDev, expected.at("splits").at("dev"));
  }
}

}  // namespace
}  // namespace tilewright::tasks
