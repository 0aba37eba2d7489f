#include "worker/hub/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>

#include "common/base/result.h"
#include "tests/support/paths.h"

namespace tilewright::hub {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using Variables = std::map<std::string, std::string>;

HubOptions options_with(Variables variables, const std::string& cache_dir = "",
                        const std::string& token = "") {
  variables.emplace("HOME", "/no/home");
  return options_from_environment(
      [&](const char* name) {
        const auto found = variables.find(name);
        return found == variables.end() ? "" : found->second;
      },
      cache_dir, token);
}

TEST(HubOptions, HaveTheDefaultsOfHuggingfaceHub) {
  const HubOptions options = options_with({});
  EXPECT_EQ(options.endpoint, "https://huggingface.co");
  EXPECT_EQ(options.cache_dir, "/no/home/.cache/huggingface/hub");
  EXPECT_EQ(options.datasets_cache, "/no/home/.cache/huggingface/datasets");
  EXPECT_EQ(options.token, "");
  EXPECT_FALSE(options.offline);
}

TEST(HubOptions, FindTheCacheInTheFirstVariableThatIsSet) {
  Variables variables = {{"XDG_CACHE_HOME", "/xdg"}};
  EXPECT_EQ(options_with(variables).cache_dir, "/xdg/huggingface/hub");
  variables["HF_HOME"] = "/hf";
  EXPECT_EQ(options_with(variables).cache_dir, "/hf/hub");
  EXPECT_EQ(options_with(variables).datasets_cache, "/hf/datasets");
  EXPECT_EQ(options_with(variables).model_cache(), "/hf/hub");
  variables["HUGGINGFACE_HUB_CACHE"] = "/older";
  EXPECT_EQ(options_with(variables).cache_dir, "/older");
  variables["HF_HUB_CACHE"] = "/hub";
  EXPECT_EQ(options_with(variables).cache_dir, "/hub");
  EXPECT_EQ(options_with(variables).model_cache(), "/hub");
  variables["HF_DATASETS_CACHE"] = "/data";
  EXPECT_EQ(options_with(variables).datasets_cache, "/data");
  // The order of transformers 4.57, utils/hub.py.
  variables["TRANSFORMERS_CACHE"] = "/transformers";
  EXPECT_EQ(options_with(variables).model_cache(), "/transformers");
  EXPECT_EQ(options_with(variables).cache_dir, "/hub");
  EXPECT_EQ(options_with(variables, "/flag").cache_dir, "/flag");
  EXPECT_EQ(options_with(variables, "/flag").model_cache(), "/flag");
  EXPECT_EQ(options_with(variables, "/flag").datasets_cache, "/flag");
}

TEST(HubOptions, ExpandTheHomeDirectoryAndVariables) {
  EXPECT_EQ(options_with({{"HF_HUB_CACHE", "~/cache"}}).cache_dir, "/no/home/cache");
  EXPECT_EQ(
      options_with({{"HF_HUB_CACHE", "$BASE/a/${JOB}b/$LOST$"}, {"BASE", "/mnt"}, {"JOB", "j"}})
          .cache_dir,
      "/mnt/a/jb/$LOST$");
  EXPECT_EQ(options_with({{"HF_HUB_CACHE", "/a~b/${open"}}).cache_dir, "/a~b/${open");
}

TEST(HubOptions, AreOfflineForTheValuesOfHuggingfaceHub) {
  for (const char* value : {"1", "ON", "yes", "True"}) {
    EXPECT_TRUE(options_with({{"HF_HUB_OFFLINE", value}}).offline) << value;
    EXPECT_TRUE(options_with({{"TRANSFORMERS_OFFLINE", value}}).offline) << value;
  }
  EXPECT_FALSE(options_with({{"HF_HUB_OFFLINE", "0"}}).offline);
  EXPECT_FALSE(options_with({{"HF_HUB_OFFLINE", "0"}, {"TRANSFORMERS_OFFLINE", "1"}}).offline);
}

// datasets 4, config.py.
TEST(HubOptions, HaveAVariableOfDataSetsThatOverridesTheOthers) {
  EXPECT_TRUE(options_with({{"HF_HUB_OFFLINE", "1"}}).datasets_offline);
  EXPECT_TRUE(options_with({{"HF_DATASETS_OFFLINE", "true"}}).datasets_offline);
  EXPECT_FALSE(options_with({{"HF_DATASETS_OFFLINE", "1"}}).offline);
  EXPECT_FALSE(
      options_with({{"HF_DATASETS_OFFLINE", "0"}, {"HF_HUB_OFFLINE", "1"}}).datasets_offline);
}

TEST(HubOptions, CheckTheEndpoint) {
  EXPECT_EQ(options_with({{"HF_ENDPOINT", "http://mirror:8080/hub/"}}).endpoint,
            "http://mirror:8080/hub");
  for (const char* endpoint :
       {"mirror", "ftp://mirror", "https://", "https://a b", "https://user@host", "https://a\nb",
        "https://mirror:99999", "http://:8080"}) {
    try {
      options_with({{"HF_ENDPOINT", endpoint}});
      ADD_FAILURE() << endpoint;
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      EXPECT_THAT(failure.what(), HasSubstr("HF_ENDPOINT: found"));
    }
  }
}

TEST(HubOptions, HideThePasswordOfTheEndpoint) {
  for (const char* endpoint :
       {"https://user:s3cret@host", "user:s3cret@host", "https://user:s3/cret@p@host",
        "https://host?token=s3cret", "ftp://user:s3cret@host?token=s3cret"}) {
    try {
      options_with({{"HF_ENDPOINT", endpoint}});
      ADD_FAILURE() << endpoint;
    } catch (const Failure& failure) {
      EXPECT_THAT(failure.what(), AllOf(HasSubstr("HF_ENDPOINT: found"), HasSubstr("host"),
                                        Not(HasSubstr("s3")), Not(HasSubstr("cret"))));
    }
  }
}

TEST(HubOptions, ReadTheTokenFromVariablesOrFiles) {
  const testing::TemporaryDirectory folder;
  const std::string home = folder.path().string();
  std::ofstream(folder.path() / "token") << "hf_home\n";
  std::ofstream(folder.path() / "other") << "hf_other";
  Variables variables = {{"HF_HOME", home}};
  EXPECT_EQ(options_with(variables).token, "hf_home");
  variables["HF_TOKEN_PATH"] = home + "/other";
  EXPECT_EQ(options_with(variables).token, "hf_other");
  variables["HF_TOKEN_PATH"] = home + "/none";
  EXPECT_EQ(options_with(variables).token, "");
  variables["HUGGING_FACE_HUB_TOKEN"] = "hf_older";
  EXPECT_EQ(options_with(variables).token, "hf_older");
  variables["HF_TOKEN"] = " hf_token\n";
  EXPECT_EQ(options_with(variables).token, "hf_token");
  variables["HF_HUB_DISABLE_IMPLICIT_TOKEN"] = "1";
  EXPECT_EQ(options_with(variables).token, "");
  EXPECT_EQ(options_with(variables, "", "hf_flag").token, "hf_flag");
}

TEST(HubOptions, TakeCertificatesFromAFileOrADirectoryAsRequests) {
  const testing::TemporaryDirectory folder;
  const std::string directory = folder.path().string();
  Variables variables = {{"SSL_CERT_FILE", "/ssl.pem"}, {"SSL_CERT_DIR", "/ssl"}};
  EXPECT_EQ(options_with(variables).ca_file, "/ssl.pem");
  EXPECT_EQ(options_with(variables).ca_directory, "/ssl");
  variables["CURL_CA_BUNDLE"] = "/curl.pem";
  EXPECT_EQ(options_with(variables).ca_file, "/curl.pem");
  variables["REQUESTS_CA_BUNDLE"] = directory;
  EXPECT_EQ(options_with(variables).ca_file, "");
  EXPECT_EQ(options_with(variables).ca_directory, directory);
}

// A shared HF_HOME may have the token of another user; a directory cannot be read by root either.
TEST(HubOptions, KeepTheProblemOfATokenThatNoRequestMayNeed) {
  const testing::TemporaryDirectory folder;
  std::filesystem::create_directory(folder.path() / "token");
  const HubOptions options = options_with({{"HF_HOME", folder.path().string()}});
  EXPECT_EQ(options.token, "");
  EXPECT_THAT(options.token_problem, HasSubstr((folder.path() / "token").string()));
  const HubOptions given = options_from_environment(
      [&](const char* name) {
        return std::string(name) == "HF_HOME" ? folder.path().string() : std::string();
      },
      "", "hf_flag");
  EXPECT_EQ(given.token, "hf_flag");
  EXPECT_EQ(given.token_problem, "");
}

TEST(HubOptions, RejectATokenThatAddsHeaders) {
  const std::string token = "hf_secret\r\nX-Evil: 1";
  for (const bool flag : {false, true}) {
    try {
      options_with(flag ? Variables{} : Variables{{"HF_TOKEN", token}}, "", flag ? token : "");
      ADD_FAILURE();
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.code(), ExitCode::kUsage);
      EXPECT_THAT(failure.what(),
                  AllOf(StartsWith(flag ? "--token: found a token" : "HF_TOKEN: found a token"),
                        Not(HasSubstr("hf_secret"))));
    }
  }
}

}  // namespace
}  // namespace tilewright::hub
