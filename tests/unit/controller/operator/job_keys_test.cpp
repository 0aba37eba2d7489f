// Tests of the master key and the keys derived from it.
#include "controller/operator/job_keys.h"

#include <gmock/gmock.h>

#include "tests/unit/controller/operator/scripted_api.h"

namespace tilewright::controller {
namespace {

using kube::ApiResult;
using kube::ErrorKind;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::ScriptedApi;

constexpr const char* kGetSecret = "GET /api/v1/namespaces/system/secrets/master";
constexpr const char* kPost = "POST /api/v1/namespaces/system/secrets";
constexpr const char* kMaster = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
constexpr const char* kMasterBase64 =  // of kMaster
    "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc4OWFiY2RlZg==";
constexpr const char* kUid = "5f0c8f6e-0b3a-4c2e-9d57-3f1f5a0a7c11";
constexpr const char* kOtherUid = "5f0c8f6e-0b3a-4c2e-9d57-3f1f5a0a7c12";
// RFC 5869, computed with Python's hmac:
//   prk = hmac.digest(b"tilewright job key", kMaster, "sha256")
//   hmac.digest(prk, kUid + b"\x01", "sha256").hex()
constexpr const char* kKey = "926c69c1371fc73e5a89547294aa1687ba82660b28943ed0c463b76629e7f150";
//   hmac.digest(prk, b"id " + kUid + b"\x01", "sha256").hex()[:8]
constexpr const char* kId = "181d419e";
constexpr const char* kOtherKey =
    "526643cfb3d29d3fd5eaa8e6c1d612bee04ccb101883983b1000141acee99786";

json secret(const std::string& base64) { return {{"data", {{"master-key", base64}}}}; }

// The base64 of kMaxBytes + 1 bytes 'x'.
std::string too_long() {
  static_assert(net::SecretKey::kMaxBytes % 3 == 1);
  std::string base64;
  for (std::size_t i = 0; i < net::SecretKey::kMaxBytes / 3; ++i) base64 += "eHh4";
  return base64 + "eHg=";
}

ApiResult<JobKeys> load(ScriptedApi& api) {
  return JobKeys::load(api.client(), kube::WriteGuard::unfenced(), "system", "master",
                       kube::soon());
}

TEST(JobKeys, AreDerivedFromTheMasterKeyAndTheJobsUid) {
  const JobKeys keys(net::SecretKey::from_bytes(kMaster).value());
  EXPECT_EQ(keys.hex_key_for(kUid), kKey);
  EXPECT_EQ(keys.hex_key_for(kOtherUid), kOtherKey);
}

TEST(JobKeys, HaveIdsThatDoNotRevealTheKey) {
  const JobKeys keys(net::SecretKey::from_bytes(kMaster).value());
  EXPECT_EQ(keys.id_for(kUid), kId);
  EXPECT_NE(keys.id_for(kOtherUid), kId);
  EXPECT_NE(JobKeys(net::SecretKey::random()).id_for(kUid), kId);
}

TEST(JobKeys, EqualTheKeyThatWorkersReadFromTheirFile) {
  const JobKeys keys(net::SecretKey::from_bytes(kMaster).value());
  const net::SecretKey key = keys.key_for(kUid);
  EXPECT_EQ(std::string(key.bytes().begin(), key.bytes().end()), kKey);
}

TEST(JobKeys, UseAnExistingSecret) {
  ScriptedApi api;
  api.answer(kGetSecret, 200, secret(kMasterBase64));
  const auto keys = load(api);
  ASSERT_TRUE(keys.ok()) << keys.error().sentence();
  EXPECT_EQ(keys->hex_key_for(kUid), kKey);
  EXPECT_THAT(api.order(), ElementsAre(kGetSecret));
}

TEST(JobKeys, CreateAMissingSecret) {
  ScriptedApi api;
  api.answer(kPost, 201, secret(kMasterBase64));
  const auto keys = load(api);
  ASSERT_TRUE(keys.ok()) << keys.error().sentence();
  EXPECT_EQ(keys->hex_key_for(kUid), kKey) << "from the stored Secret";
  const json made = api.body_of(kPost);
  EXPECT_EQ(made["immutable"], true);
  EXPECT_EQ(made["metadata"]["name"], "master");
  const std::string drawn = made["stringData"]["master-key"];
  EXPECT_EQ(drawn.size(), 64U);
  EXPECT_EQ(drawn.find_first_not_of("0123456789abcdef"), std::string::npos);
  ScriptedApi another;
  another.answer(kPost, 201, secret(kMasterBase64));
  ASSERT_TRUE(load(another).ok());
  EXPECT_NE(another.body_of(kPost)["stringData"]["master-key"], drawn) << "random";
}

TEST(JobKeys, UseTheSecretThatAnotherReplicaCreatedFirst) {
  int gets = 0;
  kube::ScriptedServer server([&](auto& connection, const auto& request) {
    if (request.method == "POST") {
      connection.answer(409, kube::status_text(409, "AlreadyExists"));
    } else if (gets++ == 0) {
      connection.answer(404, kube::status_text(404, "NotFound"));
    } else {
      connection.answer(200, secret(kMasterBase64).dump());
    }
  });
  const auto client = kube::client_for(server);
  const auto keys =
      JobKeys::load(*client, kube::WriteGuard::unfenced(), "system", "master", kube::soon());
  ASSERT_TRUE(keys.ok()) << keys.error().sentence();
  EXPECT_EQ(keys->hex_key_for(kUid), kKey);
}

TEST(JobKeys, RejectADamagedSecretWithoutRevealingIt) {
  for (const json& damaged :
       {json::object(), json{{"data", nullptr}}, json{{"data", {{"master-key", 7}}}},
        json{{"data", {{"other", "eA=="}}}}, json{{"data", {{"master-key", "*** no base64 ***"}}}},
        secret("dG9vIHNob3J0" /* "too short" */), secret(too_long())}) {
    ScriptedApi api;
    api.answer(kGetSecret, 200, damaged);
    const auto keys = load(api);
    ASSERT_FALSE(keys.ok()) << damaged;
    EXPECT_EQ(keys.error().kind, ErrorKind::kProtocol);
    EXPECT_THAT(keys.error().sentence(), HasSubstr("secrets system/master"));
    EXPECT_THAT(keys.error().sentence(), HasSubstr("delete the Secret"));
    EXPECT_THAT(keys.error().sentence(), Not(HasSubstr("short")));
    EXPECT_THAT(api.order(), ElementsAre(kGetSecret)) << "never overwritten";
  }
}

TEST(JobKeys, AreNotCreatedWithoutTheLease) {
  ScriptedApi api;
  const kube::WriteGuard fenced(MonotonicTime::min());
  const auto keys = JobKeys::load(api.client(), fenced, "system", "master", kube::soon());
  EXPECT_TRUE(keys.is(ErrorKind::kFenced));
  EXPECT_THAT(api.order(), ElementsAre(kGetSecret));
}

}  // namespace
}  // namespace tilewright::controller
