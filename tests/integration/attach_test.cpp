// Tests of a claim whose volume is attached to another node. They run Kubernetes' attach-detach
// controller with two fake nodes and a fake attacher, and check what the user sees and that the job
// resumes once the volume is free.
#include "tests/integration/controller_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;

const kube::ResourceType kAttachments = {"storage.k8s.io", "v1", "volumeattachments",
                                         "VolumeAttachment", false};

// Works like a CSI driver's external attacher. It sets its finalizer first, so that no
// VolumeAttachment is deleted before the volume is detached.
class FakeAttacher {
 public:
  FakeAttacher(ControlPlane& control_plane, kube::Client& client, std::string driver)
      : driver_(std::move(driver)),
        client_(control_plane.client({control_plane.admin_certificate(), ""})),
        attachments_(client, kAttachments, "", [this](const std::string& name, const json& object) {
          on_attachment(name, object);
        }) {}

  // Waits until the volume is attached to that node only, with no attach or detach in progress.
  bool wait_for(const std::string& node) {
    return attachments_.wait_until([&](const ObjectWatch::Objects& all) {
      bool there = false;
      for (const auto& [name, attachment] : all) {
        if (attachment["spec"]["attacher"] != driver_) continue;
        if (attachment["spec"]["nodeName"] != node || !is_attached(attachment)) return false;
        there = true;
      }
      return there;
    });
  }
  bool is_attached_to(const std::string& node) const {
    const ObjectWatch::Objects all = attachments_.objects();
    return std::ranges::any_of(all, [&](const auto& entry) {
      const json& spec = entry.second["spec"];
      return spec["attacher"] == driver_ && spec["nodeName"] == node && is_attached(entry.second);
    });
  }

 private:
  static bool is_attached(const json& attachment) {
    return !attachment["metadata"].contains("deletionTimestamp") &&
           attachment.value(json::json_pointer("/status/attached"), false);
  }
  // A conflict is ignored: the next event has the current object.
  void on_attachment(const std::string& name, const json& attachment) {
    if (attachment.is_null() || attachment["spec"]["attacher"] != driver_) return;
    const std::string path = kube::path_of(kAttachments, "", name);
    const json& metadata = attachment["metadata"];
    if (metadata.contains("deletionTimestamp")) {
      client_->merge_patch(path, {{"metadata", {{"finalizers", nullptr}}}});
    } else if (!metadata.contains("finalizers")) {
      client_->merge_patch(path,
                           {{"metadata", {{"finalizers", {"external-attacher/" + driver_}}}}});
    } else if (!is_attached(attachment)) {
      client_->merge_patch(path + "/status", {{"status", {{"attached", true}}}});
    }
  }

  const std::string driver_;
  std::unique_ptr<HttpsClient> client_;  // used by the watch thread only
  ObjectWatch attachments_;
};

// Two nodes, `here` and `there`, and a bound claim `work` whose volume can be attached to one node
// at a time.
class AttachTest : public ControllerTest {
 protected:
  AttachTest() : ControllerTest({"kube-controller-manager"}) {}

  void SetUp() override {
    ControllerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    driver_ = namespace_ + ".example.com";
    make("/apis/storage.k8s.io/v1/csidrivers",
         {{"metadata", {{"name", driver_}}}, {"spec", {{"attachRequired", true}}}});
    make_claim();
    second_node_ =
        std::make_unique<FakeNode>(control_plane(), *client_, namespace_, second_node_name());
    first_node().accept_pods(false);
    second_node().accept_pods(false);
    nodes_ = std::make_unique<ObjectWatch>(*client_, kube::resource::nodes(), "");
    attacher_ = std::make_unique<FakeAttacher>(control_plane(), *client_, driver_);
    const std::string plugins = (control_plane().folder() / "flexvolumes").string();
    attach_detach_controller_.emplace(control_plane().start(
        "kube-controller-manager",
        {"--controllers=persistentvolume-attach-detach-controller", "--leader-elect=false",
         "--kubeconfig=" + control_plane().kubeconfig().string(), "--secure-port=0",
         "--flex-volume-plugin-dir=" + plugins, "--profiling=false"}));
  }
  void TearDown() override {
    attach_detach_controller_.reset();
    attacher_.reset();
    nodes_.reset();
    second_node_.reset();
    ControllerTest::TearDown();
  }

  FakeNode& first_node() { return *node_; }
  FakeNode& second_node() { return *second_node_; }
  std::string first_node_name() const { return "node-" + namespace_; }
  std::string second_node_name() const { return "other-" + namespace_; }
  std::string core() const { return "/api/v1/namespaces/" + namespace_; }
  // The name of the volume in a node's status.
  std::string unique_name() const { return "kubernetes.io/csi/" + driver_ + "^disk-1"; }

  static json make(const std::string& path, const json& object) {
    const HttpResponse made = admin().post(path, object);
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }
  // The test binds the claim, because no PersistentVolume controller runs.
  void make_claim() {
    const std::string volume = "pv-" + namespace_;
    const json claim = make(core() + "/persistentvolumeclaims",
                            {{"metadata", {{"name", "work"}}},
                             {"spec",
                              {{"accessModes", {"ReadWriteOnce"}},
                               {"storageClassName", ""},
                               {"volumeName", volume},
                               {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
    const json reference = {{"kind", "PersistentVolumeClaim"},
                            {"apiVersion", "v1"},
                            {"namespace", namespace_},
                            {"name", "work"},
                            {"uid", claim["metadata"]["uid"]}};
    make("/api/v1/persistentvolumes",
         {{"metadata", {{"name", volume}}},
          {"spec",
           {{"accessModes", {"ReadWriteOnce"}},
            {"capacity", {{"storage", "1Gi"}}},
            {"persistentVolumeReclaimPolicy", "Retain"},
            {"claimRef", reference},
            {"csi", {{"driver", driver_}, {"volumeHandle", "disk-1"}}}}}});
    const json bound = {{"status", {{"phase", "Bound"}}}};
    for (const std::string& path :
         {"/api/v1/persistentvolumes/" + volume, core() + "/persistentvolumeclaims/work"}) {
      const HttpResponse set = admin().merge_patch(path + "/status", bound);
      EXPECT_TRUE(set.ok()) << set.message();
    }
  }

  // A kubelet mounts a volume once it is in volumesAttached of its node's status.
  ::testing::AssertionResult volume_attached_to(const std::string& node) {
    const auto is_attached = [&](const Objects& all) {
      const auto found = all.find(node);
      if (found == all.end()) return false;
      const json attached =
          found->second.value(json::json_pointer("/status/volumesAttached"), json::array());
      return std::ranges::any_of(
          attached, [&](const json& volume) { return volume["name"] == unique_name(); });
    };
    if (nodes_->wait_until(is_attached)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << json(nodes_->objects()).dump(1);
  }
  void mount_and_run(FakeNode& node, const std::string& name) {
    ASSERT_TRUE(volume_attached_to(name));
    node.set_volumes_in_use({unique_name()});
    node.hold_containers(false);
    node.start_containers();
  }
  // An unrelated pod on `here` uses that claim.
  void run_unrelated_pod() {
    first_node().hold_containers(true);
    make(core() + "/pods",
         {{"metadata", {{"name", "stranger"}}},
          {"spec",
           {{"nodeName", first_node_name()},
            {"containers", {{{"name", "one"}, {"image", "one"}}}},
            {"volumes", {{{"name", "v"}, {"persistentVolumeClaim", {{"claimName", "work"}}}}}}}}});
    mount_and_run(first_node(), first_node_name());
    ASSERT_TRUE(wait_for_live_pods(1));
  }

  // Succeeds once an object of that kind has such an event.
  ::testing::AssertionResult has_event(const std::string& kind, const std::string& reason,
                                       const std::string& beginning) {
    ObjectWatch events(*client_, kube::resource::events(), namespace_);
    const bool came = events.wait_until([&](const Objects& all) {
      return std::ranges::any_of(all, [&](const auto& entry) {
        const json& event = entry.second;
        return event["regarding"]["kind"] == kind && event["reason"] == reason &&
               event.value("note", "").starts_with(beginning);
      });
    });
    if (came) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << json(events.objects()).dump(1);
  }
  // An empty reason means: not blocked. The controller reads a pod's events every 30 s; the timeout
  // covers more than one read on a busy machine.
  ::testing::AssertionResult blocked_becomes(const std::string& reason) {
    const bool came = jobs_->wait_until(
        [&](const Objects& jobs) {
          const auto job = jobs.find("mrpc");
          return job != jobs.end() && is_true(job->second, "Blocked", reason) != reason.empty();
        },
        std::chrono::seconds(150));
    if (came) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << "the job is " << job().dump(1);
  }
  std::string blocked() { return condition_of(job(), "Blocked").value("message", ""); }

  std::string driver_;
  std::unique_ptr<FakeNode> second_node_;
  std::unique_ptr<ObjectWatch> nodes_;
  std::unique_ptr<FakeAttacher> attacher_;
  std::optional<ChildProcess> attach_detach_controller_;
};

TEST_F(AttachTest, ReportsWhichPodHoldsTheClaimAndStartsWhenItIsReleased) {
  run_unrelated_pod();
  second_node().accept_pods(true);
  second_node().hold_containers(true);
  start_controller();
  create_job();
  ASSERT_TRUE(blocked_becomes("ClaimInUse"));
  EXPECT_TRUE(has_event("Pod", "FailedAttachVolume",
                        fmt::format("Multi-Attach error for volume \"pv-{}\"", namespace_)));
  const std::string message = blocked();
  // Kubernetes may report it on only the first pod of a node.
  const auto message_for_worker = [](int index) {
    return fmt::format(
        "PersistentVolumeClaim work can be attached to only one node, and pods on another node use "
        "it (stranger); mrpc-worker-{} starts when the volume is detached",
        index);
  };
  EXPECT_THAT(message, AnyOf(message_for_worker(0), message_for_worker(1)));
  EXPECT_TRUE(has_event("TrainJob", "ClaimInUse", message));

  ASSERT_TRUE(admin().remove(core() + "/pods/stranger").ok());
  ASSERT_TRUE(wait_for_live_pods(0));
  EXPECT_TRUE(attacher_->is_attached_to(first_node_name())) << "the volume is still mounted";
  first_node().set_volumes_in_use({});
  ASSERT_TRUE(attacher_->wait_for(second_node_name()));
  // The job is no longer blocked, although its containers have not started.
  ASSERT_TRUE(blocked_becomes(""));
  EXPECT_TRUE(has_event("Pod", "SuccessfulAttachVolume", "AttachVolume.Attach succeeded"));
  mount_and_run(second_node(), second_node_name());
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(wait_for_live_pods(2));
  second_node().succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  EXPECT_FALSE(is_true(job(), "Blocked"));
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
}

TEST_F(AttachTest, AdvisesOneNodeForWorkersThatShareAClaim) {
  first_node().accept_pods(true);
  first_node().hold_containers(true);
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("replicas: 2"), 11, "replicas: 1");
  create_job(manifest);
  mount_and_run(first_node(), first_node_name());
  ASSERT_TRUE(phase_becomes("Running"));

  first_node().accept_pods(false);
  second_node().accept_pods(true);
  second_node().hold_containers(true);
  ASSERT_TRUE(change_job({{"spec", {{"worker", {{"replicas", 2}}}}}}).ok());
  ASSERT_TRUE(blocked_becomes("ClaimInUse"));
  EXPECT_EQ(
      blocked(),
      "PersistentVolumeClaim work can be attached to only one node, and mrpc-worker-0 uses it "
      "on " +
          first_node_name() +
          "; set spec.worker.nodeSelector or spec.worker.affinity so that all workers run on one "
          "node; mrpc-worker-1 is then recreated");

  second_node().accept_pods(false);
  first_node().accept_pods(true);
  ASSERT_TRUE(admin()
                  .merge_patch("/api/v1/nodes/" + first_node_name(),
                               {{"metadata", {{"labels", {{"disk", "here"}}}}}})
                  .ok());
  ASSERT_TRUE(change_job({{"spec", {{"worker", {{"nodeSelector", {{"disk", "here"}}}}}}}}).ok());
  ASSERT_TRUE(job_becomes([](const json& job) {
    return job["status"]["replicas"]["ready"] == 2 && !is_true(job, "Blocked");
  }));
  ASSERT_TRUE(wait_for_live_pods(2));
  first_node().succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
}

}  // namespace
}  // namespace tilewright::testing
