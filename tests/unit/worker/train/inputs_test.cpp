#include "worker/train/inputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/paths.h"

namespace tilewright::train {
namespace {

namespace fs = std::filesystem;

class DataSets : public ::testing::Test {
 protected:
  void add(const std::string& path) const {
    fs::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << "x";
  }
  std::shared_ptr<const tasks::DataTables> resolve(const std::string& name, const std::string& task,
                                                   const std::string& config = "") const {
    Settings settings;
    settings.dataset_name = (folder_.path() / name).string();
    settings.dataset_config_name = config;
    settings.task_name = task;
    hub::HubOptions options;
    options.offline = options.datasets_offline = true;
    return resolve_data_set(settings, options);
  }

  testing::TemporaryDirectory folder_;
};

TEST_F(DataSets, OfOneTaskHaveTheirOnlyConfiguration) {
  add("rte/train-00000-of-00001.parquet");
  add("sst2/data/train-00000-of-00001.parquet");
  EXPECT_NE(resolve("rte", "rte"), nullptr);
  EXPECT_NE(resolve("sst2", "sst2"), nullptr);
}

TEST_F(DataSets, OfGlueHaveTheConfigurationOfTheTask) {
  add("glue/mrpc/train-00000-of-00001.parquet");
  add("glue/rte/train-00000-of-00001.parquet");
  EXPECT_NE(resolve("glue", "mrpc"), nullptr);
  EXPECT_NE(resolve("glue", "mrpc", "MRPC"), nullptr);
}

TEST_F(DataSets, ThatCannotBeDownloadedNameTheFlagForFiles) {
  const auto refusal = [&](const std::string& dataset_name) {
    Settings settings;
    settings.dataset_name = dataset_name;
    settings.task_name = "rte";
    hub::HubOptions options;
    options.endpoint = "http://127.0.0.1:1";
    options.cache_dir = options.datasets_cache = folder_.path();
    options.limits.attempts = 1;
    try {
      resolve_data_set(settings, options);
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kHubUnavailable);
      return std::string(failure.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal(""), ::testing::EndsWith("; without a connection use --data_dir DIR with the "
                                               "files of the task"));
  EXPECT_THAT(refusal("org/rte"), ::testing::EndsWith("; without a connection use --dataset_name "
                                                      "DIR with its Parquet files"));
}

}  // namespace
}  // namespace tilewright::train
