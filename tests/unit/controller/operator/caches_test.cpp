// Tests of Caches: which pods belong to a job, and which job a change reconciles.
#include "controller/operator/caches.h"

#include <gmock/gmock.h>

#include <set>

#include "controller/cluster/objects.h"
#include "tests/support/silent_logger.h"
#include "tests/unit/controller/api/manifest.h"
#include "tests/unit/controller/operator/scripted_api.h"

namespace tilewright::controller {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using testing::ScriptedApi;
using ::testing::UnorderedElementsAre;
using tilewright::testing::make_silent_logger;

class CachesTest : public ::testing::Test {
 protected:
  static api::TrainJob job() {
    api::TrainJob job = api::testing::job_of();
    job.metadata.namespace_name = "ns";
    job.metadata.uid = "job-uid";
    return job;
  }
  // Worker `index` of the job as the API server returns it, but in any namespace.
  static json worker_in(const std::string& namespace_name, int index) {
    json pod = cluster::build_pod(job(), index, {});
    pod["metadata"]["namespace"] = namespace_name;
    pod["metadata"]["uid"] = fmt::format("{}-{}", namespace_name, index);
    pod["metadata"]["resourceVersion"] = "1";
    return pod;
  }
  // The caches of a cluster with these pods and without jobs and nodes.
  std::unique_ptr<Caches> caches_with(const std::vector<json>& pods) {
    api_.answer_list("GET /api/v1/pods", pods);
    api_.answer_list("GET /api/v1/nodes", {});
    api_.answer_list("GET /apis/tilewright.dev/v1alpha1/trainjobs", {});
    auto caches = std::make_unique<Caches>(
        api_.client(), "", [this](const std::string& key, Change) { changed(key); },
        make_silent_logger());
    caches->start();
    EXPECT_TRUE(caches->wait_synced(kube::soon()));
    return caches;
  }
  static std::vector<std::string> names(const std::vector<Caches::Pod>& pods) {
    std::vector<std::string> names;
    names.reserve(pods.size());
    for (const Caches::Pod& pod : pods) {
      names.push_back(key_of(pod->namespace_name, pod->name));
    }
    return names;
  }
  std::set<std::string> changed_keys() {
    const std::lock_guard lock(mutex_);
    return changed_;
  }

 private:
  void changed(const std::string& key) {
    const std::lock_guard lock(mutex_);
    changed_.insert(key);
  }

  ScriptedApi api_;
  std::mutex mutex_;
  std::set<std::string> changed_;
};

TEST_F(CachesTest, FindsThePodsOfAJob) {
  const auto caches = caches_with({worker_in("ns", 0), worker_in("ns", 1)});
  EXPECT_THAT(names(caches->pods_of({"ns", "job-uid"})),
              UnorderedElementsAre("ns/mrpc-worker-0", "ns/mrpc-worker-1"));
  EXPECT_THAT(caches->pods_of({"ns", "another"}), IsEmpty());
}

// The owner reference of a pod can name the UID of any job, also in another namespace.
TEST_F(CachesTest, KeepsPodsOfAnotherNamespaceOutOfAJob) {
  const auto caches = caches_with({worker_in("ns", 0), worker_in("stranger", 0)});
  EXPECT_THAT(names(caches->pods_of({"ns", "job-uid"})), ElementsAre("ns/mrpc-worker-0"));
  EXPECT_THAT(changed_keys(), UnorderedElementsAre("ns/mrpc", "stranger/mrpc"));
}

}  // namespace
}  // namespace tilewright::controller
