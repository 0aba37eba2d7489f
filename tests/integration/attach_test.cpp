// A claim that another node has: Kubernetes' own attach-detach controller beside ours, two nodes
// that run nothing and an attacher that attaches nothing. What a user is told, and that the job
// goes on once the volume is free.
#include "tests/integration/controller_fixture.h"

namespace tilewright::testing {
namespace {

using nlohmann::json;
using ::testing::AnyOf;

const kube::ResourceType kAttachments = {"storage.k8s.io", "v1", "volumeattachments",
                                         "VolumeAttachment", false};

// As a driver's external attacher: its finalizer first, so that nothing goes before it is detached.
class StandInAttacher {
 public:
  StandInAttacher(ControlPlane& control_plane, kube::Client& client, std::string driver)
      : driver_(std::move(driver)),
        client_(control_plane.client({control_plane.admin_certificate(), ""})),
        attachments_(client, kAttachments, "",
                     [this](const std::string& name, const json& object) { see(name, object); }) {}

  // Until the volume is attached to that node and to no other, nor on the way from or to one.
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
  // A conflict needs no word: the next event says what is.
  void see(const std::string& name, const json& attachment) {
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
  std::unique_ptr<HttpsClient> client_;  // of the watch's thread
  ObjectWatch attachments_;
};

// Two nodes, `here` and `there`, and a bound claim `work` of a volume that one node may have at a
// time.
class AttachTest : public ControllerTest {
 protected:
  AttachTest() : ControllerTest({"kube-controller-manager"}) {}

  void SetUp() override {
    ControllerTest::SetUp();
    if (IsSkipped() || HasFatalFailure()) return;
    driver_ = space_ + ".example.com";
    make("/apis/storage.k8s.io/v1/csidrivers",
         {{"metadata", {{"name", driver_}}}, {"spec", {{"attachRequired", true}}}});
    make_claim();
    there_ = std::make_unique<StandInNode>(control_plane(), *client_, space_, there_name());
    here().accept_pods(false);
    there().accept_pods(false);
    nodes_ = std::make_unique<ObjectWatch>(*client_, kube::resource::nodes(), "");
    attacher_ = std::make_unique<StandInAttacher>(control_plane(), *client_, driver_);
    const std::string plugins = (control_plane().folder() / "flexvolumes").string();
    attach_detach_.emplace(control_plane().start(
        "kube-controller-manager",
        {"--controllers=persistentvolume-attach-detach-controller", "--leader-elect=false",
         "--kubeconfig=" + control_plane().kubeconfig().string(), "--secure-port=0",
         "--flex-volume-plugin-dir=" + plugins, "--profiling=false"}));
  }
  void TearDown() override {
    attach_detach_.reset();
    attacher_.reset();
    nodes_.reset();
    there_.reset();
    ControllerTest::TearDown();
  }

  StandInNode& here() { return *node_; }
  StandInNode& there() { return *there_; }
  std::string here_name() const { return "node-" + space_; }
  std::string there_name() const { return "other-" + space_; }
  std::string core() const { return "/api/v1/namespaces/" + space_; }
  // As nodes name the volume.
  std::string unique_name() const { return "kubernetes.io/csi/" + driver_ + "^disk-1"; }

  static json make(const std::string& path, const json& object) {
    const HttpResponse made = admin().post(path, object);
    EXPECT_EQ(made.status, 201) << made.message();
    return made.json();
  }
  // Bound by the test, as nobody else does it.
  void make_claim() {
    const std::string volume = "pv-" + space_;
    const json claim = make(core() + "/persistentvolumeclaims",
                            {{"metadata", {{"name", "work"}}},
                             {"spec",
                              {{"accessModes", {"ReadWriteOnce"}},
                               {"storageClassName", ""},
                               {"volumeName", volume},
                               {"resources", {{"requests", {{"storage", "1Gi"}}}}}}}});
    const json reference = {{"kind", "PersistentVolumeClaim"},
                            {"apiVersion", "v1"},
                            {"namespace", space_},
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

  // A kubelet mounts a volume once its node's status says so.
  ::testing::AssertionResult is_told_to_mount(const std::string& node) {
    const auto told = [&](const Objects& all) {
      const auto found = all.find(node);
      if (found == all.end()) return false;
      const json attached =
          found->second.value(json::json_pointer("/status/volumesAttached"), json::array());
      return std::ranges::any_of(
          attached, [&](const json& volume) { return volume["name"] == unique_name(); });
    };
    if (nodes_->wait_until(told)) return ::testing::AssertionSuccess();
    return ::testing::AssertionFailure() << json(nodes_->objects()).dump(1);
  }
  void mount_and_run(StandInNode& node, const std::string& name) {
    ASSERT_TRUE(is_told_to_mount(name));
    node.set_volumes_in_use({unique_name()});
    node.hold_containers(false);
    node.start_containers();
  }
  // Somebody else's pod with that claim, here.
  void run_stranger() {
    here().hold_containers(true);
    make(core() + "/pods",
         {{"metadata", {{"name", "stranger"}}},
          {"spec",
           {{"nodeName", here_name()},
            {"containers", {{{"name", "one"}, {"image", "one"}}}},
            {"volumes", {{{"name", "v"}, {"persistentVolumeClaim", {{"claimName", "work"}}}}}}}}});
    mount_and_run(here(), here_name());
    ASSERT_TRUE(wait_for_live_pods(1));
  }

  // Whether an object of that kind gets such an event.
  ::testing::AssertionResult is_told(const std::string& kind, const std::string& reason,
                                     const std::string& beginning) {
    ObjectWatch events(*client_, kube::resource::events(), space_);
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
  // An empty reason: nothing is in the way. The controller asks for a pod's events every half
  // minute, and on a busy machine they may just have been too late for it more than once.
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
  std::unique_ptr<StandInNode> there_;
  std::unique_ptr<ObjectWatch> nodes_;
  std::unique_ptr<StandInAttacher> attacher_;
  std::optional<ChildProcess> attach_detach_;
};

TEST_F(AttachTest, SaysWhoHasTheClaimAndGoesOnWhenItIsFree) {
  run_stranger();
  there().accept_pods(true);
  there().hold_containers(true);
  start_controller();
  create_job();
  ASSERT_TRUE(blocked_becomes("ClaimInUse"));
  EXPECT_TRUE(is_told("Pod", "FailedAttachVolume",
                      fmt::format("Multi-Attach error for volume \"pv-{}\"", space_)));
  const std::string message = blocked();
  // Kubernetes may tell it to the first pod on a node alone.
  const auto of_worker = [](int index) {
    return fmt::format(
        "the PersistentVolumeClaim work can be attached to one node alone, and another has it for "
        "stranger; mrpc-worker-{} starts as soon as it is free",
        index);
  };
  EXPECT_THAT(message, AnyOf(of_worker(0), of_worker(1)));
  EXPECT_TRUE(is_told("TrainJob", "ClaimInUse", message));

  ASSERT_TRUE(admin().remove(core() + "/pods/stranger").ok());
  ASSERT_TRUE(wait_for_live_pods(0));
  EXPECT_TRUE(attacher_->is_attached_to(here_name())) << "it is still mounted there";
  here().set_volumes_in_use({});
  ASSERT_TRUE(attacher_->wait_for(there_name()));
  // Nothing is in the way any more, though the containers are yet to start.
  ASSERT_TRUE(blocked_becomes(""));
  EXPECT_TRUE(is_told("Pod", "SuccessfulAttachVolume", "AttachVolume.Attach succeeded"));
  mount_and_run(there(), there_name());
  ASSERT_TRUE(phase_becomes("Running"));
  ASSERT_TRUE(wait_for_live_pods(2));
  there().succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  EXPECT_FALSE(is_true(job(), "Blocked"));
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
}

TEST_F(AttachTest, SaysWhatToDoAboutTwoWorkersOnTwoNodes) {
  here().accept_pods(true);
  here().hold_containers(true);
  start_controller();
  std::string manifest = kControllerJob;
  manifest.replace(manifest.find("replicas: 2"), 11, "replicas: 1");
  create_job(manifest);
  mount_and_run(here(), here_name());
  ASSERT_TRUE(phase_becomes("Running"));

  here().accept_pods(false);
  there().accept_pods(true);
  there().hold_containers(true);
  ASSERT_TRUE(change_job({{"spec", {{"worker", {{"replicas", 2}}}}}}).ok());
  ASSERT_TRUE(blocked_becomes("ClaimInUse"));
  EXPECT_EQ(blocked(),
            "the PersistentVolumeClaim work can be attached to one node alone, and mrpc-worker-0 "
            "has it on " +
                here_name() +
                "; keep the workers on one node by spec.worker.nodeSelector or affinity: "
                "mrpc-worker-1 is placed anew as soon as the job changes");

  there().accept_pods(false);
  here().accept_pods(true);
  ASSERT_TRUE(admin()
                  .merge_patch("/api/v1/nodes/" + here_name(),
                               {{"metadata", {{"labels", {{"disk", "here"}}}}}})
                  .ok());
  ASSERT_TRUE(change_job({{"spec", {{"worker", {{"nodeSelector", {{"disk", "here"}}}}}}}}).ok());
  ASSERT_TRUE(job_becomes([](const json& job) {
    return job["status"]["replicas"]["ready"] == 2 && !is_true(job, "Blocked");
  }));
  ASSERT_TRUE(wait_for_live_pods(2));
  here().succeed_all();
  ASSERT_TRUE(phase_becomes("Succeeded"));
  EXPECT_EQ(job()["status"]["restarts"]["total"], 0);
}

}  // namespace
}  // namespace tilewright::testing
