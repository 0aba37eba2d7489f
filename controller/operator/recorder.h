// Posts Kubernetes events from its own thread, so that reconciles do not wait for them.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "common/base/log.h"
#include "controller/client/client.h"
#include "controller/operator/records.h"
#include "controller/policy/plan.h"

namespace tilewright::controller {

// Builds an events.k8s.io/v1 Event about the job. Its name is a hash of the content and the job's
// version, so that posting the same event twice creates one object.
nlohmann::json build_event(const api::TrainJob& job, const policy::Event& event,
                           const std::string& reporting_instance, WallTime now,
                           JobKind kind = JobKind::kTrainJob);

class Recorder {
 public:
  // Maximum number of queued events. Beyond it the oldest is dropped; no decision depends on
  // events.
  static constexpr std::size_t kMaxWaiting = 4096;

  // `client` must outlive the recorder. `instance`: name of this replica.
  Recorder(kube::Client& client, std::shared_ptr<const kube::WriteGuard> guard,
           std::string instance, std::shared_ptr<Logger> log);
  // Posts the queued events while the guard permits it, then joins the thread.
  ~Recorder();
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  void record(const api::TrainJob& job, const policy::Event& event,
              JobKind kind = JobKind::kTrainJob);

 private:
  void run();
  void post(const nlohmann::json& event);

  kube::Client& client_;
  const std::shared_ptr<const kube::WriteGuard> guard_;
  const std::string instance_;
  const std::shared_ptr<Logger> log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<nlohmann::json> waiting_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace tilewright::controller
