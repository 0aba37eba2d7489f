// How workers are led to the leader, and what of a Service is refused.
#include "controller/manager/endpoint.h"

#include <gmock/gmock.h>

#include "tests/unit/controller/manager/scripted_api.h"

namespace tilewright::manager {
namespace {

using kube::Problem;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScriptedApi;

const EndpointPlace kPlace{"system", "tilewright-rendezvous"};
constexpr const char* kGet = "GET /api/v1/namespaces/system/services/tilewright-rendezvous";
constexpr const char* kPatch =
    "PATCH /apis/discovery.k8s.io/v1/namespaces/system/endpointslices/tilewright-rendezvous";

json service(const json& changes = json::object()) {
  json made = {
      {"spec",
       {{"clusterIP", "10.96.0.7"},
        {"ports", {{{"name", "other"}, {"port", 1}}, {{"name", "rendezvous"}, {"port", 29400}}}}}}};
  made["spec"].merge_patch(changes);
  return made;
}

kube::ApiResult<net::Address> publish(ScriptedApi& api) {
  return publish_endpoint(api.client(), kube::WriteGuard::unfenced(), kPlace, {"10.0.0.5", 31000},
                          kube::soon());
}

TEST(EndpointSlice, LeadsToTheLeadersPort) {
  const json slice = build_endpoint_slice(kPlace, {"10.0.0.5", 31000});
  EXPECT_EQ(slice["addressType"], "IPv4");
  EXPECT_EQ(slice["endpoints"][0]["addresses"], json({"10.0.0.5"}));
  EXPECT_EQ(slice["endpoints"][0]["conditions"]["ready"], true);
  // The port's name is what ties it to the Service's.
  EXPECT_EQ(slice["ports"],
            json::array({{{"name", "rendezvous"}, {"port", 31000}, {"protocol", "TCP"}}}));
  EXPECT_EQ(slice["metadata"]["labels"]["kubernetes.io/service-name"], "tilewright-rendezvous");
  EXPECT_EQ(slice["metadata"]["namespace"], "system");
  EXPECT_NE(slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
            "endpointslice-controller.k8s.io")
      << "Kubernetes' own controller would delete it";
}

TEST(EndpointSlice, KnowsIPv6) {
  const json slice = build_endpoint_slice(kPlace, {"fd00::5", 31000});
  EXPECT_EQ(slice["addressType"], "IPv6");
  EXPECT_EQ(slice["endpoints"][0]["addresses"], json({"fd00::5"}));
}

TEST(Endpoint, WorkersAreGivenTheServicesOwnAddress) {
  ScriptedApi api;
  api.answer(kGet, 200, service());
  const auto address = publish(api);
  ASSERT_TRUE(address.ok()) << address.error().sentence();
  EXPECT_EQ(*address, (net::Address{"10.96.0.7", 29400}));
  EXPECT_THAT(api.order(), ElementsAre(kGet, kPatch));
  EXPECT_EQ(api.body_of(kPatch), build_endpoint_slice(kPlace, {"10.0.0.5", 31000}));
}

TEST(Endpoint, KnowsAServiceOfIPv6) {
  ScriptedApi api;
  api.answer(kGet, 200, service({{"clusterIP", "fd00::1"}}));
  const auto address = publish(api);
  ASSERT_TRUE(address.ok()) << address.error().sentence();
  EXPECT_EQ(net::to_string(*address), "[fd00::1]:29400");
}

TEST(Endpoint, RefusesAServiceThatCannotServe) {
  struct Case {
    json changes;
    const char* sentence;
  };
  for (const Case& wrong : {
           Case{{{"selector", {{"app", "x"}}}}, "it has a selector"},
           Case{{{"clusterIP", "None"}}, "it has no cluster IP"},
           Case{{{"clusterIP", nullptr}}, "it has no cluster IP"},
           Case{{{"ports", nullptr}}, "it has no port of the name rendezvous"},
           Case{{{"ports", {{{"name", "other"}, {"port", 1}}}}},
                "it has no port of the name rendezvous"},
       }) {
    ScriptedApi api;
    api.answer(kGet, 200, service(wrong.changes));
    const auto address = publish(api);
    ASSERT_FALSE(address.ok()) << wrong.changes;
    EXPECT_THAT(address.error().sentence(), HasSubstr(wrong.sentence));
    EXPECT_THAT(address.error().sentence(), HasSubstr("system/tilewright-rendezvous"));
    EXPECT_THAT(api.order(), ElementsAre(kGet)) << "nothing may be written";
  }
}

TEST(Endpoint, SaysThatTheServiceIsMissingAndThatTheSliceIsForbidden) {
  ScriptedApi api;
  EXPECT_TRUE(publish(api).is(Problem::kNotFound));
  api.answer(kGet, 200, service());
  api.answer(kPatch, 403, ScriptedApi::status(403, "Forbidden"));
  EXPECT_TRUE(publish(api).is(Problem::kForbidden));
}

}  // namespace
}  // namespace tilewright::manager
