// Tests of the EndpointSlice and of the checks of its Service.
#include "controller/operator/endpoint.h"

#include <gmock/gmock.h>

#include "tests/unit/controller/operator/scripted_api.h"

namespace tilewright::controller {
namespace {

using kube::ErrorKind;
using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::ScriptedApi;

const EndpointRef kRef{"system", "tilewright-rendezvous"};
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

const Leader kLeader{{"10.0.0.5", 31000}, {}};

kube::ApiResult<ServiceAddresses> publish(ScriptedApi& api, const Leader& leader = kLeader) {
  return publish_endpoint(api.client(), kube::WriteGuard::unfenced(), kRef, leader, kube::soon());
}

TEST(EndpointSlice, PointsToTheLeadersPort) {
  const json slice = build_endpoint_slice(kRef, kLeader);
  EXPECT_EQ(slice["addressType"], "IPv4");
  EXPECT_EQ(slice["endpoints"][0]["addresses"], json({"10.0.0.5"}));
  EXPECT_EQ(slice["endpoints"][0]["conditions"]["ready"], true);
  // Kubernetes matches the port to the Service's port by name.
  EXPECT_EQ(slice["ports"],
            json::array({{{"name", "rendezvous"}, {"port", 31000}, {"protocol", "TCP"}}}));
  EXPECT_EQ(slice["metadata"]["labels"]["kubernetes.io/service-name"], "tilewright-rendezvous");
  EXPECT_EQ(slice["metadata"]["namespace"], "system");
  EXPECT_NE(slice["metadata"]["labels"]["endpointslice.kubernetes.io/managed-by"],
            "endpointslice-controller.k8s.io")
      << "the EndpointSlice controller of Kubernetes would delete it";
}

TEST(EndpointSlice, SupportsIPv6) {
  const json slice = build_endpoint_slice(kRef, {{"fd00::5", 31000}, {}});
  EXPECT_EQ(slice["addressType"], "IPv6");
  EXPECT_EQ(slice["endpoints"][0]["addresses"], json({"fd00::5"}));
}

TEST(Endpoint, ReturnsTheClusterIpOfTheService) {
  ScriptedApi api;
  api.answer(kGet, 200, service());
  const auto address = publish(api);
  ASSERT_TRUE(address.ok()) << address.error().sentence();
  EXPECT_EQ(address->rendezvous, (net::Address{"10.96.0.7", 29400}));
  EXPECT_FALSE(address->tcpstore);
  EXPECT_THAT(api.order(), ElementsAre(kGet, kPatch));
  EXPECT_EQ(api.body_of(kPatch), build_endpoint_slice(kRef, kLeader));
}

TEST(Endpoint, PublishesTheTcpStoreBesideTheRendezvous) {
  ScriptedApi api;
  api.answer(kGet, 200,
             service({{"ports",
                       {{{"name", "rendezvous"}, {"port", 29400}},
                        {{"name", "tcpstore"}, {"port", 29401}}}}}));
  const auto addresses = publish(api, {{"10.0.0.5", 31000}, 31001});
  ASSERT_TRUE(addresses.ok()) << addresses.error().sentence();
  EXPECT_EQ(addresses->rendezvous, (net::Address{"10.96.0.7", 29400}));
  EXPECT_EQ(addresses->tcpstore, (net::Address{"10.96.0.7", 29401}));
  EXPECT_EQ(api.body_of(kPatch)["ports"],
            json::parse(R"([{"name": "rendezvous", "port": 31000, "protocol": "TCP"},
                            {"name": "tcpstore", "port": 31001, "protocol": "TCP"}])"));
}

TEST(Endpoint, SupportsAServiceWithIPv6) {
  ScriptedApi api;
  api.answer(kGet, 200, service({{"clusterIP", "fd00::1"}}));
  const auto address = publish(api);
  ASSERT_TRUE(address.ok()) << address.error().sentence();
  EXPECT_EQ(net::to_string(address->rendezvous), "[fd00::1]:29400");
}

TEST(Endpoint, RejectsAnUnusableService) {
  struct Case {
    json changes;
    const char* sentence;
  };
  for (const Case& wrong : {
           Case{{{"selector", {{"app", "x"}}}}, "it has a selector"},
           Case{{{"clusterIP", "None"}}, "it has no cluster IP"},
           Case{{{"clusterIP", nullptr}}, "it has no cluster IP"},
           Case{{{"ports", nullptr}}, "it has no port named rendezvous"},
           Case{{{"ports", {{{"name", "other"}, {"port", 1}}}}}, "it has no port named rendezvous"},
       }) {
    ScriptedApi api;
    api.answer(kGet, 200, service(wrong.changes));
    const auto address = publish(api);
    ASSERT_FALSE(address.ok()) << wrong.changes;
    EXPECT_THAT(address.error().sentence(), HasSubstr(wrong.sentence));
    EXPECT_THAT(address.error().sentence(), HasSubstr("system/tilewright-rendezvous"));
    EXPECT_THAT(api.order(), ElementsAre(kGet)) << "no write";
  }
}

TEST(Endpoint, ReportsAMissingServiceAndAForbiddenSlice) {
  ScriptedApi api;
  EXPECT_TRUE(publish(api).is(ErrorKind::kNotFound));
  api.answer(kGet, 200, service());
  api.answer(kPatch, 403, ScriptedApi::status(403, "Forbidden"));
  EXPECT_TRUE(publish(api).is(ErrorKind::kForbidden));
}

}  // namespace
}  // namespace tilewright::controller
