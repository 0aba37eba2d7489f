// Tests the CRD on a real API server: defaults, immutable fields, scaling, columns.
#include "common/json/timestamp.h"
#include "controller/api/encode.h"
#include "tests/integration/crd_fixture.h"

namespace tilewright::testing {
namespace {

using api::testing::with;
using nlohmann::json;
using ::testing::HasSubstr;

class Crd : public CrdTest {};

TEST_F(Crd, DefaultsTheExamplesAsValidateDoes) {
  const std::map<std::string, std::string> names = {
      {"examples/trainjob.yaml", "paraphrase-[a-z0-9]{5}"}, {"examples/squad.yaml", "squad"}};
  for (const auto& [example, name] : names) {
    const std::string file = source_dir() / example;
    const CommandResult made =
        control_plane().kubectl({"create", "-f", file, "-o", "jsonpath={.metadata.name}"});
    ASSERT_EQ(made.exit_code, 0) << made.error;
    EXPECT_THAT(made.output, ::testing::MatchesRegex(name));
    const HttpResponse answer = admin().get(kJobsPath + "/" + made.output);
    ASSERT_EQ(answer.status, 200) << answer.message();
    api::DecodeResult by_api_server =
        api::decode_object(answer.json(), api::FieldValidation::kStrict);
    ASSERT_TRUE(by_api_server.ok()) << sentences(by_api_server.errors);
    const auto by_operator = api::check_manifest(read_text(file), file, api::Target::kCluster);
    ASSERT_TRUE(by_operator.ok()) << by_operator.error().message;
    EXPECT_EQ(by_api_server.job.spec, by_operator->job.spec)
        << api::to_json(by_api_server.job) << "\n"
        << api::to_json(by_operator->job);
  }
}

TEST_F(Crd, DefaultsAMinimalManifest) {
  const std::string manifest = R"(apiVersion: tilewright.dev/v1alpha1
kind: TrainJob
metadata: {name: least}
spec:
  trainer: {task: sst2, model: "v:m", data: "v:d", output: "v:o"}
  volumes: [{name: v, persistentVolumeClaim: {claimName: c}}]
)";
  api::DecodeResult by_api_server =
      api::decode_object(created(manifest), api::FieldValidation::kStrict);
  ASSERT_TRUE(by_api_server.ok()) << sentences(by_api_server.errors);
  const auto by_operator = api::check_manifest(manifest, "", api::Target::kCluster);
  ASSERT_TRUE(by_operator.ok()) << by_operator.error().message;
  api::ElasticPolicy& elastic = by_api_server.job.spec.elastic_policy;
  // The operator applies defaults that depend on other fields.
  EXPECT_FALSE(elastic.min_replicas || elastic.max_replicas || elastic.max_restarts);
  elastic = by_operator->job.spec.elastic_policy;
  EXPECT_EQ(by_api_server.job.spec, by_operator->job.spec);
}

TEST_F(Crd, AllowsChangesOfMutableFieldsOnly) {
  created(with("sharedMemory: 64Mi", "env: [{name: A, value: a}]"));
  const std::pair<json, const char*> fixed[] = {
      {{{"nprocPerNode", 2}}, "spec.nprocPerNode"},
      {{{"trainer", {{"learning_rate", 0.5}}}}, "spec.trainer"},
      {{{"trainer", {{"seed", 1}}}}, "spec.trainer"},
      {{{"volumes", json::array({{{"name", "data"}, {"emptyDir", json::object()}}})}},
       "spec.volumes"},
      {{{"worker", {{"env", json::array({{{"name", "A"}, {"value", "b"}}})}}}}, "spec.worker.env"},
      {{{"worker", {{"env", nullptr}}}}, "spec.worker.env"},
      {{{"runPolicy", {{"schedulingPolicy", {{"queue", "q"}}}}}},
       "spec.runPolicy.schedulingPolicy"},
      {{{"elasticPolicy", {{"rdzvConf", json::array({{{"key", "tls"}, {"value", "true"}}})}}}},
       "spec.elasticPolicy.rdzvConf"},
  };
  for (const auto& [change, field] : fixed) {
    const HttpResponse answer = patch_job({{"spec", change}});
    EXPECT_EQ(answer.status, 422) << change;
    EXPECT_THAT(answer.message(), HasSubstr(field)) << change;
    EXPECT_THAT(answer.message(), HasSubstr(change.contains("nprocPerNode")
                                                ? "found 2, expected 1: this field cannot change"
                                                : "found a change, expected none"))
        << change;
  }
  const json free[] = {
      {{"runPolicy", {{"suspend", true}}}},
      {{"runPolicy", {{"suspend", false}, {"ttlSecondsAfterFinished", 60}}}},
      {{"runPolicy", {{"activeDeadlineSeconds", 60}, {"cleanPodPolicy", "All"}}}},
      {{"elasticPolicy", {{"minReplicas", 2}, {"maxReplicas", 8}, {"maxRestarts", 9}}}},
      {{"worker", {{"replicas", 7}}}},
      {{"worker", {{"image", "other:1"}, {"resources", {{"memory", "3Gi"}}}}}},
      {{"worker", {{"nodeSelector", {{"pool", "a"}}}, {"tolerations", {{{"key", "a"}}}}}}},
      {{"worker", {{"podTemplate", {{"spec", {{"priority", 1}}}}}, {"runAsUser", 7}}}},
  };
  for (const json& change : free) {
    const HttpResponse answer = patch_job({{"spec", change}});
    EXPECT_EQ(answer.status, 200) << change << ": " << answer.message();
  }
}

TEST_F(Crd, BoundsAStartedJobByItsShards) {
  created();
  const HttpResponse started = admin().merge_patch(
      kJobsPath + "/mrpc/status",
      {{"status", {{"phase", "Running"}, {"nominalWorkers", 2}, {"virtualShards", 8}}}});
  ASSERT_EQ(started.status, 200) << started.message();
  EXPECT_EQ(patch_job({{"spec", {{"elasticPolicy", {{"maxReplicas", 8}}}}}}).status, 200);
  const HttpResponse answer = patch_job({{"spec", {{"elasticPolicy", {{"maxReplicas", 16}}}}}});
  EXPECT_THAT(answer.message(),
              HasSubstr("found 16 x nprocPerNode 1 = 16 processes, expected at most 8"));
  EXPECT_THAT(answer.message(), HasSubstr("spec.elasticPolicy.maxReplicas"));
}

TEST_F(Crd, ScalesWithinItsBounds) {
  created();
  const CommandResult three = control_plane().kubectl({"scale", "trainjob/mrpc", "--replicas=3"});
  EXPECT_EQ(three.exit_code, 0) << three.error;
  ASSERT_EQ(
      admin()
          .merge_patch(
              kJobsPath + "/mrpc/status",
              {{"status", {{"replicas", {{"active", 3}}}, {"selector", "tilewright.dev/a=b"}}}})
          .status,
      200);
  const json scale = admin().get(kJobsPath + "/mrpc/scale").json();
  EXPECT_EQ(scale["spec"]["replicas"], 3);
  EXPECT_EQ(scale["status"]["replicas"], 3);
  EXPECT_EQ(scale["status"]["selector"], "tilewright.dev/a=b");
  const CommandResult five = control_plane().kubectl({"scale", "trainjob/mrpc", "--replicas=5"});
  EXPECT_NE(five.exit_code, 0);
  EXPECT_THAT(five.error,
              HasSubstr("found 4, expected at least 5, the value of spec.worker.replicas"));

  // A job without minReplicas and maxReplicas is not elastic.
  created(with("    minReplicas: 1\n    maxReplicas: 4\n", "", with("name: mrpc", "name: fixed")));
  EXPECT_THAT(
      patch_job({{"spec", {{"worker", {{"replicas", 3}}}}}}, "fixed").message(),
      HasSubstr(
          "found 3, expected at most 2: a job without spec.elasticPolicy.maxReplicas cannot grow"));
  EXPECT_THAT(patch_job({{"spec", {{"worker", {{"replicas", 1}}}}}}, "fixed").message(),
              HasSubstr("found 1, expected at least 2: a job without "
                        "spec.elasticPolicy.minReplicas cannot shrink"));
}

TEST_F(Crd, StoresTheOperatorsStatusUnchanged) {
  json object = created();
  api::TrainJobStatus status;
  const api::Timestamp time = parse_timestamp("2026-01-31T23:59:59Z");
  status.phase = api::Phase::kRunning;
  status.observed_generation = 1;
  status.start_time = time;
  status.completion_time = time;
  status.training_complete_time = time;
  status.replicas = {.desired = 2, .active = 2, .ready = 1, .succeeded = 0, .failed = 1};
  status.selector = "tilewright.dev/job-name=mrpc";
  status.restarts = {.program = 1, .infrastructure = 2, .out_of_memory = 3};
  status.conditions = {{api::condition::kBlocked, api::ConditionStatus::kTrue, "Unschedulable",
                        "no node has 2 CPUs", 1, time}};
  status.failures = {{time,
                      1,
                      0,
                      "mrpc-worker-1",
                      "uid",
                      "node",
                      "fetch",
                      api::FailureCause::kProgram,
                      1,
                      std::nullopt,
                      "Error",
                      7,
                      {"a line"}}};
  status.counted_pods = {"uid"};
  status.progress.emplace();
  status.progress->step = 111;
  status.progress->total_steps = 168;
  status.progress->epoch = 5.29;
  status.progress->loss = 0.1323;
  status.progress->learning_rate = 3.45e-05;
  status.progress->examples_per_second = 255.8;
  status.progress->tokens_per_second = 5811;
  status.progress->eta_seconds = 7;
  status.progress->last_checkpoint = "checkpoint-100";
  status.progress->metrics = {{"eval_accuracy", 0.8}};
  status.progress->updated = time;
  status.nominal_workers = 2;
  status.virtual_shards = 8;
  status.rendezvous_epoch = 3;
  object["status"] = api::to_json(status);
  const HttpResponse answer =
      admin().put(kJobsPath + "/mrpc/status?fieldValidation=Strict", object);
  ASSERT_EQ(answer.status, 200) << answer.message();
  EXPECT_EQ(api::decode_object(answer.json(), api::FieldValidation::kStrict).job.status, status)
      << answer.body;

  const CommandResult table = control_plane().kubectl({"get", "trainjobs"});
  EXPECT_THAT(table.output,
              ::testing::ContainsRegex("NAME +PHASE +STEP +LOSS/METRIC +EXAMPLES/S +ETA +READY "
                                       "+RESTARTS +AGE\n"
                                       "mrpc +Running +111/168 +accuracy 0.8000 +255.8 +7.0 s "
                                       "+1/2 +6 +[0-9]+s\n"));
  const CommandResult wide = control_plane().kubectl({"get", "tj", "-o", "wide"});
  EXPECT_THAT(wide.output, ::testing::ContainsRegex(" 5.29 +mrpc +checkpoint-100 "));
  EXPECT_THAT(wide.output, HasSubstr("no node has 2 CPUs"));
}

TEST_F(Crd, SupportsKubectlExplain) {
  // The API server publishes the OpenAPI document of a new CRD after a short delay.
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  CommandResult told;
  do {
    told = control_plane().kubectl({"explain", "trainjob.spec.worker"});
  } while (told.exit_code != 0 && std::chrono::steady_clock::now() < deadline);
  EXPECT_THAT(told.output, HasSubstr("KIND:       TrainJob"));
  EXPECT_THAT(told.output, HasSubstr("Desired number of workers."));
  EXPECT_THAT(told.output, HasSubstr("restartPolicy\t<string>"));
  EXPECT_THAT(told.output, HasSubstr("Always, OnFailure, Never, ExitCode"));
}

}  // namespace
}  // namespace tilewright::testing
