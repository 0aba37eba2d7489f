// Runs Kubeflow's operator and then ours on the same PyTorchJobs, with Kubeflow's CRD, and compares
// the objects that both make field by field. Every difference must be in kIntended. `kubeflow/run`
// builds the peer and starts this program, which writes the differences to TILEWRIGHT_PEER_RESULT.
#include <fmt/format.h>

#include <fstream>
#include <regex>
#include <set>

#include "tests/integration/controller_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;

constexpr const char* kContainer = R"(
          - name: pytorch
            image: trainer:1
            command: [torchrun, /workspace/run_qa.py]
            env: [{name: OMP_NUM_THREADS, value: "56"}]
            resources: {limits: {cpu: 2, memory: 2Gi}, requests: {cpu: 2, memory: 2Gi}}
            volumeMounts: [{name: dshm, mountPath: /dev/shm}]
          - {name: sidecar, image: sidecar:1}
          volumes: [{name: dshm, emptyDir: {medium: Memory}}]
          nodeSelector: {node-type: spr}
)";

struct Case {
  const char* name;
  std::string spec;
};

std::string replica(const char* type, int replicas, const char* policy) {
  return fmt::format(
      "    {}:\n      replicas: {}\n      restartPolicy: {}\n      template:\n"
      "        metadata: {{labels: {{team: nlp}}, annotations: {{note: x}}}}\n"
      "        spec:\n          containers:{}",
      type, replicas, policy, kContainer);
}

std::vector<Case> cases() {
  const std::string specs = "  pytorchReplicaSpecs:\n";
  return {
      {"guide",
       "  elasticPolicy: {rdzvBackend: c10d, minReplicas: 1, maxReplicas: 4, maxRestarts: 10}\n" +
           specs + replica("Worker", 2, "OnFailure")},
      {"elastic",
       "  elasticPolicy:\n    {rdzvBackend: etcd, rdzvHost: store, rdzvPort: 2379, rdzvId: run-7, "
       "minReplicas: 1, maxReplicas: 3, nProcPerNode: 2, standalone: true,\n     rdzvConf: [{key: "
       "timeout, value: '60'}, {key: is_host, value: '0'}]}\n" +
           specs + replica("Worker", 2, "ExitCode")},
      {"bounds", "  elasticPolicy: {maxReplicas: 2}\n" + specs + replica("Worker", 2, "Never")},
      {"metrics",
       "  elasticPolicy:\n    minReplicas: 1\n    maxReplicas: 3\n    metrics:\n    - type: "
       "Resource\n      resource: {name: cpu, target: {type: Utilization, averageUtilization: "
       "80}}\n" +
           specs + replica("Worker", 1, "OnFailure")},
      {"master", specs + replica("Master", 1, "OnFailure") + replica("Worker", 2, "OnFailure")},
      {"nproc", "  nprocPerNode: '4'\n" + specs + replica("Master", 1, "Always") +
                    replica("Worker", 1, "Always")},
      {"alone", specs + replica("Master", 1, "Never")},
  };
}

// Differences that docs/pytorchjobs.md explains. The patterns match "KIND PATH" whole.
struct Intended {
  const char* pattern;
  const char* subject;  // of its table
};
const Intended kIntended[] = {
    {R"(Pod \S+ /metadata/labels/(tilewright\.dev|app\.kubernetes\.io)~1\S+)",
     "labels and annotations"},
    {R"(Pod \S+ /metadata/annotations/tilewright\.dev~1\S+)", "labels and annotations"},
    {R"(Service \S+ /metadata/labels/(tilewright\.dev|app\.kubernetes\.io)~1\S+)",
     "labels and annotations"},
    {R"(HorizontalPodAutoscaler \S+ /metadata/labels/\S+)", "labels and annotations"},
    {R"(Pod \S+ /spec/restartPolicy)", "restart in place"},
    {R"(Pod \S+ /spec/initContainers/.*)", "init container of workers"},
    {R"(Pod \S+ /spec/containers/pytorch/env/TILEWRIGHT_\S+)", "container pytorch"},
    {R"(Pod \S+ /spec/containers/pytorch/volumeMounts/tilewright-job-key/\S+)",
     "container pytorch"},
    {R"(Pod \S+ /spec/containers/pytorch/terminationMessagePolicy)", "container pytorch"},
    {R"(Pod \S+ /spec/volumes/tilewright-job-key/\S+)", "container pytorch"},
    {R"(Service \S+ /spec/publishNotReadyAddresses)", "init container of workers"},
    {R"(PyTorchJob \S+ /status/conditions/TilewrightState/\S+)", "status"},
    {R"(PyTorchJob \S+ /status/conditions/Blocked/\S+)", "conditions"},
    {R"(PyTorchJob succeeded-\S+ /status/replicaStatuses/Worker/selector)", "replicaStatuses"},
    {R"(PyTorchJob \S+ /status/lastReconcileTime)", "lastReconcileTime"},
    {R"(PyTorchJob \S+ /status/conditions/\S+/(message|lastTransitionTime|lastUpdateTime))",
     "messages and times"},
};

// Every leaf by its JSON pointer; elements of lists by their names or types, if they have one.
void flatten(const json& value, const std::string& path, std::map<std::string, json>& leaves) {
  const auto escaped = [](std::string name) {
    for (std::size_t at = 0; (at = name.find_first_of("~/", at)) != std::string::npos; at += 2) {
      name.replace(at, 1, name[at] == '~' ? "~0" : "~1");
    }
    return name;
  };
  if (value.is_object() && !value.empty()) {
    for (const auto& [name, each] : value.items())
      flatten(each, path + "/" + escaped(name), leaves);
  } else if (value.is_array() && !value.empty()) {
    for (std::size_t i = 0; i < value.size(); ++i) {
      std::string name = std::to_string(i);
      for (const char* key : {"name", "type"}) {
        if (value[i].is_object() && value[i].contains(key) && value[i][key].is_string()) {
          name = value[i][key];
          break;
        }
      }
      flatten(value[i], path + "/" + escaped(name), leaves);
    }
  } else {
    leaves[path] = value;
  }
}

// The object without what the API server, the node or the run sets.
json normalized(json object, const std::string& namespace_name) {
  json& metadata = object["metadata"];
  for (const char* field : {"uid", "creationTimestamp", "resourceVersion", "managedFields",
                            "generation", "namespace", "generateName"}) {
    metadata.erase(field);
  }
  if (metadata.contains("ownerReferences")) metadata["ownerReferences"][0].erase("uid");
  if (object["kind"] != "PyTorchJob") object.erase("status");
  if (object["kind"] == "Service") {
    for (const char* field : {"clusterIPs", "ipFamilies"}) object["spec"].erase(field);
  }
  if (object["kind"] == "Pod") object["spec"].erase("nodeName");
  if (object["kind"] == "PyTorchJob") {
    object.erase("spec");
    object.erase("metadata");
    for (const char* field : {"startTime", "completionTime"}) {
      if (object["status"].contains(field)) object["status"][field] = "set";
    }
    // What `kubectl get` shows.
    const json& conditions = object["status"]["conditions"];
    if (!conditions.empty()) object["status"]["state"] = conditions.back()["type"];
  }
  json parsed = json::parse(std::regex_replace(object.dump(), std::regex(namespace_name), "NS"));
  return parsed;
}

class KubeflowPeerTest : public ControllerTest {
 protected:
  void SetUp() override {
    peer_ = variable("TILEWRIGHT_KUBEFLOW_PEER");
    const std::string crd = variable("TILEWRIGHT_KUBEFLOW_CRD");
    if (peer_.empty() || crd.empty()) {
      GTEST_SKIP() << "TILEWRIGHT_KUBEFLOW_PEER is not set; run tests/peers/kubeflow/run";
    }
    ControllerTest::SetUp();
    if (HasFatalFailure() || IsSkipped()) return;
    const HttpResponse made = admin().post(kCrdsPath, parse_yaml(read_text(crd)));
    ASSERT_EQ(made.status, 201) << made.message();
    const CommandResult waited = control_plane().wait_for_crd("pytorchjobs.kubeflow.org");
    ASSERT_EQ(waited.exit_code, 0) << waited.error;
  }
  void TearDown() override {
    program_.reset();
    ControllerTest::TearDown();
  }
  static std::string variable(const char* name) {
    const char* value = getenv(name);
    return value == nullptr ? "" : value;
  }

  json list(const std::string& path) {
    const HttpResponse found = admin().get(path);
    EXPECT_TRUE(found.ok()) << found.message();
    return found.json()["items"];
  }
  static void add(const json& items, const char* kind, const std::string& prefix,
                  const std::string& namespace_name, std::map<std::string, json>& objects) {
    for (json object : items) {
      object["kind"] = kind;
      const std::string name = object["metadata"]["name"];
      if (name.starts_with(prefix)) {
        objects[std::string(kind) + " " + name] = normalized(object, namespace_name);
      }
    }
  }
  // The objects of the job when it runs, and its status when it has ended.
  std::map<std::string, json> run(const Case& test, const std::string& space, FakeNode& node,
                                  ObjectWatch& jobs) {
    const std::string path = "/apis/kubeflow.org/v1/namespaces/" + space + "/pytorchjobs";
    const HttpResponse made = admin().post(
        path, parse_yaml("apiVersion: kubeflow.org/v1\nkind: PyTorchJob\nmetadata: {name: " +
                         std::string(test.name) + "}\nspec:\n" + test.spec));
    EXPECT_EQ(made.status, 201) << made.message();
    const auto reaches = [&](const char* type) {
      return jobs.wait_until([&](const Objects& all) {
        const auto job = all.find(test.name);
        if (job == all.end()) return false;
        int active = 0;
        const json statuses =
            job->second.value(json::json_pointer("/status/replicaStatuses"), json::object());
        for (const auto& [replica, counts] : statuses.items()) {
          active += counts.value("active", 0);
        }
        bool holds = false;
        for (const json& each :
             job->second.value(json::json_pointer("/status/conditions"), json::array())) {
          holds = holds || (each["type"] == type && each["status"] == "True");
        }
        const int wanted = std::string(type) == "Running" ? replicas_of(job->second) : 0;
        return holds && active == wanted;
      });
    };
    EXPECT_TRUE(reaches("Running")) << test.name << ": " << jobs.objects()[test.name].dump(1);
    std::map<std::string, json> objects;
    const std::string core = "/api/v1/namespaces/" + space;
    const std::string prefix = std::string(test.name) + "-";
    add(list(core + "/pods"), "Pod", prefix, space, objects);
    add(list(core + "/services"), "Service", prefix, space, objects);
    add(list("/apis/autoscaling/v2/namespaces/" + space + "/horizontalpodautoscalers"),
        "HorizontalPodAutoscaler", test.name, space, objects);
    json running = normalized(jobs.objects()[test.name], space);
    objects[std::string("PyTorchJob running-") + test.name] = running;
    for (const auto& [name, pod] : node.pods().objects()) {
      if (name.starts_with(prefix)) node.end_container(name, 0);
    }
    EXPECT_TRUE(reaches("Succeeded")) << test.name << ": " << jobs.objects()[test.name].dump(1);
    objects[std::string("PyTorchJob succeeded-") + test.name] =
        normalized(jobs.objects()[test.name], space);
    return objects;
  }
  static int replicas_of(const json& job) {
    int replicas = 0;
    for (const auto& [type, spec] : job["spec"]["pytorchReplicaSpecs"].items()) {
      replicas += spec.value("replicas", 1);
    }
    return replicas;
  }

  using Objects = std::map<std::string, json>;
  std::map<std::string, json> run_all(const std::string& suffix) {
    const std::string space = namespace_ + suffix;
    EXPECT_TRUE(admin().post("/api/v1/namespaces", {{"metadata", {{"name", space}}}}).ok());
    FakeNode node(control_plane(), *client_, space, "node-" + space);
    ObjectWatch jobs(*client_, controller::resource::pytorch_jobs(), space);
    std::map<std::string, json> all;
    for (const Case& each : cases()) all.merge(run(each, space, node, jobs));
    // The next operator must not find these jobs.
    admin().remove("/apis/kubeflow.org/v1/namespaces/" + space + "/pytorchjobs");
    return all;
  }

  std::string peer_;
  std::unique_ptr<RunningProgram> program_;
};

TEST_F(KubeflowPeerTest, MakesTheSameObjectsButForTheIntendedDifferences) {
  setenv("KUBECONFIG", kubeconfig_.c_str(), 1);
  program_ = std::make_unique<RunningProgram>(peer_, std::vector<std::string>{}, temporary_.path());
  const auto theirs = run_all("-theirs");
  program_->send(SIGKILL);
  (void)program_->wait();
  program_.reset();
  watch_all_namespaces_ = true;
  start_controller("", {"--enable_pytorchjobs"});
  const auto ours = run_all("-ours");

  std::map<std::string, std::set<std::string>> found;  // by subject: the paths without names
  std::size_t equal = 0;
  std::set<std::string> names;
  for (const auto& [name, object] : theirs) names.insert(name);
  for (const auto& [name, object] : ours) names.insert(name);
  for (const std::string& name : names) {
    ASSERT_TRUE(theirs.contains(name)) << "only we make " << name;
    ASSERT_TRUE(ours.contains(name)) << "only Kubeflow's operator makes " << name;
    std::map<std::string, json> a, b;
    flatten(theirs.at(name), "", a);
    flatten(ours.at(name), "", b);
    std::set<std::string> paths;
    for (const auto& [path, value] : a) paths.insert(path);
    for (const auto& [path, value] : b) paths.insert(path);
    for (const std::string& path : paths) {
      const json left = a.contains(path) ? a.at(path) : json("absent");
      const json right = b.contains(path) ? b.at(path) : json("absent");
      if (left == right) {
        ++equal;
        continue;
      }
      const std::string where = fmt::format("{} {}", name, path);
      const auto row = std::ranges::find_if(kIntended, [&](const Intended& each) {
        return std::regex_match(where, std::regex(each.pattern));
      });
      if (row == std::end(kIntended)) {
        ADD_FAILURE() << where << ": Kubeflow's operator " << left << ", ours " << right;
      } else {
        found[row->subject].insert(fmt::format("{} {}", name.substr(0, name.find(' ')), path));
      }
    }
  }
  const std::string result = variable("TILEWRIGHT_PEER_RESULT");
  if (result.empty()) return;
  std::ofstream out(result);
  out << "# Objects of Kubeflow's and Tilewright's operators\nWritten by "
         "`tests/peers/kubeflow/run`: "
      << names.size() << " objects, " << equal
      << " equal fields. The fields that differ, by the subject of the table in "
         "[docs/pytorchjobs.md](../../../docs/pytorchjobs.md):\n";
  for (const auto& [subject, paths] : found) {
    out << "\n## " << subject << "\n";
    for (const std::string& path : paths) out << "- `" << path << "`\n";
  }
}

}  // namespace
}  // namespace tilewright::testing
