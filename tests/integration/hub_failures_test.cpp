// A hub that refuses, limits, breaks off or corrupts, and names that it does not have: each ends
// the training with one sentence and its exit code, and the cache holds nothing that a later run
// trusts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "common/base/exit_codes.h"
#include "tests/integration/hub_fixture.h"

namespace tilewright {
namespace {

namespace fs = std::filesystem;
using testing::HubFault;
using testing::HubServer;

constexpr int kAlways = 1000;  // more requests than any run makes

// bert-base-cased: its weights are its only large file, so /blob/ is their address.
constexpr const char* kMrpcFlags =
    "--model_name_or_path bert-base-cased --task_name mrpc --do_train --output_dir /tmp/out "
    "--overwrite_output_dir";

struct HubFailureCase {
  std::string name;
  std::function<void(HubServer&)> inject;
  ExitCode code;
  std::vector<std::string> said;  // substrings of the message, in this order
  std::string more = {};          // flags that override those above
  std::string token = {};         // HF_TOKEN
  bool passes = true;             // whether the same command works with a hub without the fault
};

void PrintTo(const HubFailureCase& row, std::ostream* out) { *out << row.name; }

std::function<void(HubServer&)> fault(const testing::HubFaultRule& rule) {
  return [rule](HubServer& hub) { hub.add_fault(rule); };
}

std::vector<HubFailureCase> hub_failure_cases() {
  const auto nothing = [](HubServer&) {};
  const auto gated = [](HubServer& hub) {
    hub.require_token(HubServer::Type::kModel, "google-bert/bert-base-cased", "hf_right");
  };
  // Only the data set is downloaded.
  const std::string local_model =
      "--model_name_or_path " +
      (testing::hub_files() / "models/distilbert/distilbert-base-uncased").string();
  return {
      {"UnknownModel",
       nothing,
       ExitCode::kModel,
       {"model no-such-org/no-such-name", "has no public model of this name (401)", "set HF_TOKEN"},
       "--model_name_or_path no-such-org/no-such-name",
       "",
       false},
      {"UnknownModelWithAToken",
       nothing,
       ExitCode::kModel,
       {"model no-such-org/no-such-name", "has no public model of this name (404)",
        "the token in HF_TOKEN"},
       "--model_name_or_path no-such-org/no-such-name",
       "hf_right",
       false},
      {"UnknownRevision",
       nothing,
       ExitCode::kModel,
       {"model bert-base-cased", "has no such revision (404)", "expected a branch"},
       "--model_revision v9",
       "",
       false},
      {"GatedModel",
       gated,
       ExitCode::kModel,
       {"model bert-base-cased", "refuses access (401, gated)", "set HF_TOKEN"}},
      {"GatedModelWithAWrongToken",
       gated,
       ExitCode::kModel,
       {"model bert-base-cased", "refuses access (403, gated)", "the token in HF_TOKEN"},
       "",
       "hf_wrong"},
      {"LimitedRequests",
       fault({.kind = HubFault::kRateLimit, .times = kAlways, .retry_after = 3600}),
       ExitCode::kHubUnavailable,
       {"model bert-base-cased", "limits requests (429)", "asks to wait", "HF_TOKEN"}},
      {"ServerError",
       fault({.kind = HubFault::kStatus, .times = kAlways, .status = 503}),
       ExitCode::kHubUnavailable,
       {"model bert-base-cased", "answers 503, after 5 attempts"}},
      {"HalfTheWeights",
       fault({.kind = HubFault::kHalf, .method = "GET", .target = "/blob/", .times = kAlways}),
       ExitCode::kHubUnavailable,
       {"model bert-base-cased", "after 5 attempts"}},
      {"CorruptWeights",
       fault({.kind = HubFault::kCorrupt, .method = "GET", .target = "/blob/", .times = kAlways}),
       ExitCode::kModel,
       {"model bert-base-cased", "pytorch_model.bin", "SHA-256", "expected"}},
      {"UnknownDataset",
       nothing,
       ExitCode::kData,
       {"data set no-such-org/no-such-name", "has no public data set of this name (401)"},
       "--dataset_name no-such-org/no-such-name --task_name squad",
       "",
       false},
      {"UnknownConfiguration",
       nothing,
       ExitCode::kData,
       {"data set squad", "short_text", "expected"},
       "--dataset_name squad --dataset_config_name short_text --task_name squad",
       "",
       false},
      {"DatasetWithoutTheSplitTest",
       nothing,
       ExitCode::kData,
       {"data set squad: found the splits train, validation, expected test"},
       "--dataset_name squad --task_name squad --do_predict",
       "",
       false},
      {"LimitedDataset",
       fault({.kind = HubFault::kRateLimit,
              .target = "/api/datasets/",
              .times = kAlways,
              .retry_after = 3600}),
       ExitCode::kHubUnavailable,
       {"data set glue", "limits requests (429)", "asks to wait"}},
      {"HiddenDataset",
       fault({.kind = HubFault::kStatus,
              .target = "/api/datasets/",
              .times = kAlways,
              .status = 404}),
       ExitCode::kData,
       {"data set glue", "has no public data set of this name (404)"}},
      {"CorruptDataset",
       fault({.kind = HubFault::kCorrupt, .method = "GET", .target = "/blob/", .times = kAlways}),
       ExitCode::kData,
       {"data set glue", ".parquet", "SHA-256", "expected"},
       local_model},
      {"HalfADataset",
       fault({.kind = HubFault::kHalf, .method = "GET", .target = "/blob/", .times = kAlways}),
       ExitCode::kHubUnavailable,
       {"data set glue", "after 5 attempts"},
       local_model},
  };
}

class HubFailure : public testing::HubTraining,
                   public ::testing::WithParamInterface<HubFailureCase> {
 protected:
  std::string command() const { return std::string(kMrpcFlags) + " " + GetParam().more; }
};

TEST_P(HubFailure, EndsWithOneSentenceAndLeavesNothingThatIsTrusted) {
  const HubFailureCase& row = GetParam();
  const auto broken = testing::make_hub();
  row.inject(*broken);
  {
    std::optional<testing::ScopedVariable> token;
    if (!row.token.empty()) token.emplace("HF_TOKEN", row.token);
    use(*broken);
    EXPECT_EQ(run(command() + " --log_level=error"), static_cast<int>(row.code)) << output_;
  }
  EXPECT_TRUE(output_.starts_with("tilewright-worker: ")) << output_;
  EXPECT_EQ(output_.find('\n'), output_.size() - 1) << "one line: " << output_;
  std::size_t from = 0;
  for (const std::string& part : row.said) {
    const std::size_t found = output_.find(part, from);
    ASSERT_NE(found, std::string::npos) << "no \"" << part << "\" in order in: " << output_;
    from = found + part.size();
  }
  if (!row.token.empty()) {
    EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr(row.token)));
  }
  EXPECT_FALSE(fs::exists(path("out")));
  if (!row.passes) return;

  {
    const testing::ScopedVariable offline("HF_HUB_OFFLINE", "1");
    const ExitCode expected =
        output_.find("data set") == std::string::npos ? ExitCode::kModel : ExitCode::kData;
    EXPECT_EQ(run(command()), static_cast<int>(expected)) << output_;
    EXPECT_THAT(output_, ::testing::HasSubstr("because HF_HUB_OFFLINE forbids a download"));
  }
  use(*hub_);
  ASSERT_EQ(run(command()), 0) << output_;
  const std::string after_failure = digest();
  use_cache("another");
  ASSERT_EQ(run(command()), 0) << output_;
  EXPECT_EQ(digest(), after_failure);
}

INSTANTIATE_TEST_SUITE_P(All, HubFailure, ::testing::ValuesIn(hub_failure_cases()),
                         [](const auto& row) { return row.param.name; });

using HubRecovery = testing::HubTraining;

// Each of these passes: the download continues within the same run.
TEST_F(HubRecovery, TrainsThroughFaultsThatPass) {
  ASSERT_EQ(run(kMrpcFlags), 0) << output_;
  const std::string reference = digest();
  use_cache("another");
  hub_->add_fault({.kind = HubFault::kRateLimit, .target = "/api/datasets/", .retry_after = 1});
  hub_->add_fault({.kind = HubFault::kStatus, .target = "vocab.txt", .status = 502});
  hub_->add_fault({.kind = HubFault::kHalf, .method = "GET", .target = "/blob/"});
  EXPECT_EQ(run(kMrpcFlags), 0) << output_;
  EXPECT_EQ(digest(), reference);
  for (const char* said : {"answers 429; attempt 2 of 5", "answers 502; attempt 2 of 5"}) {
    EXPECT_THAT(output_, ::testing::HasSubstr(said));
  }
  EXPECT_THAT(output_, ::testing::HasSubstr("breaks off its response"));
}

TEST_F(HubRecovery, UsesTheTokenOfAGatedModel) {
  hub_->require_token(HubServer::Type::kModel, "google-bert/bert-base-cased", "hf_right");
  const testing::ScopedVariable token("HF_TOKEN", "hf_right");
  EXPECT_EQ(run(kMrpcFlags), 0) << output_;
  EXPECT_THAT(output_, ::testing::Not(::testing::HasSubstr("hf_right")));
}

}  // namespace
}  // namespace tilewright
