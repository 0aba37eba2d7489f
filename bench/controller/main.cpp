// tilewright-controller-bench: measures the operator with 200 jobs of 5 pods created at once and
// with 2,000 suspended jobs. The baseline is 8 clients that create the same objects without an
// operator. It needs etcd, an API server, a scheduler and kwok, which simulates nodes:
// `.ci/control-plane build etcd kube-apiserver kubectl kube-scheduler kwok`. Pods run as soon as
// they are scheduled and succeed after 15 seconds (stages.yaml).
//
// In this order: the idle operator; the suspended jobs, whose status it writes, and a new operator
// that starts with them; in a new cluster the baseline, jobs created one after the other, and the
// jobs at once. Request counts exclude watches, lists and requests of the Lease.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <fstream>
#include <iostream>
#include <thread>
#include <vector>

#include "bench/controller/fake_cluster.h"
#include "bench/controller/operator_process.h"
#include "common/base/clock.h"
#include "common/base/commit.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/cluster/objects.h"
#include "controller/operator/resources.h"
#include "tests/support/object_watch.h"

namespace tilewright::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kBaselineClients = 8;
constexpr int kNodes = 20;

struct Sizes {
  int jobs = 200;
  int pods = 5;  // per job
  int suspended = 2000;
  int single = 21;  // jobs created one after the other, to measure latency
};

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return in_seconds(end - start);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

api::TrainJob make_job(const std::string& name, const std::string& namespace_name, int pods) {
  api::TrainJob job;
  job.metadata.name = name;
  job.metadata.namespace_name = namespace_name;
  job.spec.trainer = {"mrpc", "work:model", "work:data", "work:out", {}, {}};
  job.spec.volumes = {{"work", {}, {{"emptyDir", json::object()}}}};
  job.spec.worker.replicas = pods;
  job.spec.trainer.flags["per_device_train_batch_size"] = "32";
  return job;
}

// Runs `work(i)` for 0 <= i < count on kBaselineClients threads.
void run_in_parallel(int count, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  threads.reserve(kBaselineClients);
  for (int i = 0; i < kBaselineClients; ++i) {
    threads.emplace_back([&] {
      for (int task = next++; task < count; task = next++) work(task);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// Records when each job and its pods reach each state.
class Timeline {
 public:
  Timeline(kube::Client& client, const std::string& namespace_name)
      : jobs_(client, controller::resource::train_jobs(), namespace_name,
              [this](const std::string& name, const json& job) { record_job(name, job); }),
        pods_(client, kube::resource::pods(), namespace_name,
              [this](const std::string& name, const json& pod) { record_pod(name, pod); }) {}

  struct JobTimes {
    int pods = 0, running = 0, ended = 0;
    Clock::time_point all_created, all_running, all_ended, reported_running, reported_succeeded;
  };
  void expect(int pods_per_job) { pods_per_job_ = pods_per_job; }
  bool wait_until(const std::function<bool(const std::map<std::string, JobTimes>&)>& holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(3), [&] { return holds(job_times_); });
  }
  std::map<std::string, JobTimes> job_times() {
    const std::lock_guard lock(mutex_);
    return job_times_;
  }

 private:
  void record_job(const std::string& name, const json& job) {
    const Clock::time_point now = Clock::now();
    const std::string phase =
        job.is_null() ? "" : job.value(json::json_pointer("/status/phase"), "");
    {
      const std::lock_guard lock(mutex_);
      JobTimes& times = job_times_[name];
      if (phase == "Running" && times.reported_running == Clock::time_point())
        times.reported_running = now;
      if (phase == "Succeeded") {
        if (times.reported_running == Clock::time_point()) times.reported_running = now;
        times.reported_succeeded = now;
      }
    }
    changed_.notify_all();
  }
  void record_pod(const std::string& name, const json& pod) {
    if (pod.is_null()) return;
    const Clock::time_point now = Clock::now();
    const std::string phase = pod["status"].value("phase", "");
    {
      const std::lock_guard lock(mutex_);
      JobTimes& times = job_times_[name.substr(0, name.rfind("-worker-"))];
      std::string& before = phases_[name];
      if (before.empty() && ++times.pods == pods_per_job_) times.all_created = now;
      if (before != "Running" && before != "Succeeded" &&
          (phase == "Running" || phase == "Succeeded") && ++times.running == pods_per_job_) {
        times.all_running = now;
      }
      if (before != "Succeeded" && phase == "Succeeded" && ++times.ended == pods_per_job_) {
        times.all_ended = now;
      }
      before = phase;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int pods_per_job_ = 0;
  std::map<std::string, JobTimes> job_times_;
  std::map<std::string, std::string> phases_;
  testing::ObjectWatch jobs_, pods_;  // last members: their threads use the others
};

Clock::time_point last_of(const std::map<std::string, Timeline::JobTimes>& job_times,
                          Clock::time_point Timeline::JobTimes::*moment) {
  Clock::time_point last;
  for (const auto& [name, times] : job_times) last = std::max(last, times.*moment);
  return last;
}

json lag_summary(const std::map<std::string, Timeline::JobTimes>& job_times,
                 Clock::time_point Timeline::JobTimes::*from,
                 Clock::time_point Timeline::JobTimes::*to) {
  std::vector<double> lags;
  lags.reserve(job_times.size());
  for (const auto& [name, times] : job_times)
    lags.push_back(seconds_between(times.*from, times.*to));
  return {{"median", median(lags)}, {"max", *std::ranges::max_element(lags)}};
}

auto all_have(const Sizes& sizes, int Timeline::JobTimes::*count) {
  return [&sizes, count](const auto& job_times) {
    return std::ranges::count_if(job_times, [&](const auto& entry) {
             return entry.second.*count == sizes.pods;
           }) == sizes.jobs;
  };
}

auto all_succeeded(int jobs) {
  return [jobs](const auto& job_times) {
    return std::ranges::count_if(job_times, [](const auto& entry) {
             return entry.second.reported_succeeded != Clock::time_point();
           }) == jobs;
  };
}

// Creates the objects that the operator would create, with kBaselineClients clients.
json measure_baseline_clients(FakeCluster& cluster, const Sizes& sizes) {
  cluster.make_namespace("baseline");
  Timeline timeline(cluster.client(), "baseline");
  timeline.expect(sizes.pods);
  const kube::WriteGuard guard = kube::WriteGuard::unfenced();
  const auto start = Clock::now();
  run_in_parallel(sizes.jobs, [&](int i) {
    api::TrainJob job = make_job(fmt::format("job-{}", i), "baseline", sizes.pods);
    api::apply_defaults(job);
    job.metadata.uid = fmt::format("00000000-0000-4000-8000-{:012}", i);
    const auto post = [&](const kube::ResourceType& type, json object) {
      object["metadata"].erase("ownerReferences");  // the job does not exist
      value_or_throw(cluster.client().create(guard, type, "baseline", object, default_wait()));
    };
    post(kube::resource::secrets(), cluster::build_secret(job, std::string(64, '0'), "00000000"));
    post(kube::resource::services(), cluster::build_service(job));
    post(kube::resource::network_policies(), cluster::build_network_policy(job, {}));
    for (int pod = 0; pod < sizes.pods; ++pod) {
      post(kube::resource::pods(), cluster::build_pod(job, pod, {"127.0.0.1:1", "00000000"}));
    }
  });
  if (!timeline.wait_until(all_have(sizes, &Timeline::JobTimes::ended))) {
    throw std::runtime_error("the pods of the baseline clients did not end");
  }
  const auto job_times = timeline.job_times();
  const double there = seconds_between(start, last_of(job_times, &Timeline::JobTimes::all_created));
  return {{"seconds_to_all_pods", there},
          {"pods_per_second", sizes.jobs * sizes.pods / there},
          {"seconds_to_all_ended",
           seconds_between(start, last_of(job_times, &Timeline::JobTimes::all_ended))}};
}

std::uint64_t sum_of(const std::map<std::string, std::uint64_t>& counts) {
  std::uint64_t sum = 0;
  for (const auto& [kind, count] : counts) sum += count;
  return sum;
}

// Measures the operator in a cluster with nodes but without jobs.
json measure_idle(FakeCluster& cluster) {
  cluster.make_namespace("operator");
  const OperatorProcess idle(cluster.control_plane(), "operator");
  return {{"start_to_ready_seconds", idle.seconds_to_ready()},
          {"resident_mib", idle.resident_mib()}};
}

json measure_operator(FakeCluster& cluster, const Sizes& sizes) {
  json result;
  OperatorProcess controller(cluster.control_plane(), "operator");
  result["start_to_ready_seconds"] = controller.seconds_to_ready();
  const kube::WriteGuard guard = kube::WriteGuard::unfenced();
  const auto create = [&](const std::string& name, const std::string& namespace_name, int pods) {
    value_or_throw(cluster.client().create(
        guard, controller::resource::train_jobs(), namespace_name,
        api::to_json(make_job(name, namespace_name, pods)), default_wait()));
  };

  cluster.make_namespace("single");
  std::vector<double> latencies;
  {
    Timeline timeline(cluster.client(), "single");
    timeline.expect(sizes.pods);
    for (int i = 0; i < sizes.single; ++i) {
      const std::string name = fmt::format("one-{}", i);
      const auto start = Clock::now();
      create(name, "single", sizes.pods);
      const bool came = timeline.wait_until([&](const auto& job_times) {
        const auto times = job_times.find(name);
        return times != job_times.end() && times->second.reported_running != Clock::time_point();
      });
      if (!came) throw std::runtime_error(name + " did not run");
      latencies.push_back(seconds_between(start, timeline.job_times()[name].all_created));
    }
    if (!timeline.wait_until(all_succeeded(sizes.single))) {
      throw std::runtime_error("the jobs created one after the other did not succeed");
    }
  }
  result["one_job_to_its_pods_seconds"] = median(latencies);

  cluster.make_namespace("crowd");
  Timeline timeline(cluster.client(), "crowd");
  timeline.expect(sizes.pods);
  const double cpu_before = controller.cpu_seconds();
  const auto requests_before = controller.requests();
  const std::uint64_t reconciles_before = controller.reconciles();
  const auto start = Clock::now();
  run_in_parallel(sizes.jobs,
                  [&](int i) { create(fmt::format("job-{}", i), "crowd", sizes.pods); });
  const double created = seconds_between(start, Clock::now());
  if (!timeline.wait_until(all_succeeded(sizes.jobs))) {
    throw std::runtime_error("the jobs did not succeed");
  }
  const auto job_times = timeline.job_times();
  const double there = seconds_between(start, last_of(job_times, &Timeline::JobTimes::all_created));
  // Wait for the events, which are posted asynchronously.
  net::sleep_until(net::within(std::chrono::seconds(3)));
  result["jobs_created_seconds"] = created;
  result["seconds_to_all_pods"] = there;
  result["pods_per_second"] = sizes.jobs * sizes.pods / there;
  result["seconds_to_all_succeeded"] =
      seconds_between(start, last_of(job_times, &Timeline::JobTimes::reported_succeeded));
  result["running_after_last_pod"] = lag_summary(job_times, &Timeline::JobTimes::all_running,
                                                 &Timeline::JobTimes::reported_running);
  result["succeeded_after_last_pod"] = lag_summary(job_times, &Timeline::JobTimes::all_ended,
                                                   &Timeline::JobTimes::reported_succeeded);
  auto requests = controller.requests();
  for (const auto& [kind, count] : requests_before) requests[kind] -= count;
  result["requests_per_job"] = static_cast<double>(sum_of(requests)) / sizes.jobs;
  result["reconciles_per_job"] =
      static_cast<double>(controller.reconciles() - reconciles_before) / sizes.jobs;
  for (const auto& [kind, count] : requests) {
    if (count > 0) result["requests"][kind] = count;
  }
  result["cpu_seconds"] = controller.cpu_seconds() - cpu_before;
  result["peak_mib"] = controller.peak_mib();
  return result;
}

json measure_suspended(FakeCluster& cluster, const Sizes& sizes) {
  cluster.make_namespace("suspended");
  const kube::WriteGuard guard = kube::WriteGuard::unfenced();
  run_in_parallel(sizes.suspended, [&](int i) {
    api::TrainJob job = make_job(fmt::format("job-{}", i), "suspended", sizes.pods);
    job.spec.run_policy.suspend = true;
    value_or_throw(cluster.client().create(guard, controller::resource::train_jobs(), "suspended",
                                           api::to_json(job), default_wait()));
  });
  const auto all_suspended = [&](const auto& jobs) {
    return std::ranges::count_if(jobs, [](const auto& entry) {
             return entry.second.value(json::json_pointer("/status/phase"), "") == "Suspended";
           }) == sizes.suspended;
  };
  testing::ObjectWatch jobs(cluster.client(), controller::resource::train_jobs(), "suspended");
  json result;
  {
    // The first operator writes the status of the jobs.
    OperatorProcess first(cluster.control_plane(), "operator");
    if (!jobs.wait_until(all_suspended, std::chrono::minutes(10))) {
      throw std::runtime_error("the jobs did not reach the phase Suspended");
    }
    result["peak_mib_at_first"] = first.peak_mib();
  }
  const OperatorProcess again(cluster.control_plane(), "operator");
  result["jobs"] = sizes.suspended;
  result["start_to_synced_seconds"] = again.seconds_to_ready();
  net::sleep_until(net::within(std::chrono::seconds(5)));
  result["cpu_seconds_after_five"] = again.cpu_seconds();
  result["peak_mib"] = again.peak_mib();
  result["requests"] = sum_of(again.requests());
  return result;
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

int run(const Sizes& sizes, const std::string& out) {
  json report = {{"cpu", cpu_name()},
                 {"cpus", std::thread::hardware_concurrency()},
                 {"commit", kCommit},
                 {"jobs", sizes.jobs},
                 {"pods_per_job", sizes.pods}};
  {
    FakeCluster store(kNodes);
    report["idle"] = measure_idle(store);
    report["suspended"] = measure_suspended(store, sizes);
  }
  FakeCluster cluster(kNodes);
  cluster.make_namespace("operator");
  report["baseline_clients"] = measure_baseline_clients(cluster, sizes);
  report["operator"] = measure_operator(cluster, sizes);
  report["pod_rate_relative_to_baseline"] =
      report["operator"]["pods_per_second"].get<double>() /
      report["baseline_clients"]["pods_per_second"].get<double>();
  std::cout << report.dump(2) << '\n';
  if (!out.empty()) std::ofstream(out) << report.dump(2) << '\n';
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  CLI::App app(
      "Benchmark of the controller with many jobs, compared with clients without a controller",
      "tilewright-controller-bench");
  tilewright::bench::Sizes sizes;
  std::string out;
  app.add_option("--jobs", sizes.jobs, "number of jobs created at once")->capture_default_str();
  app.add_option("--pods", sizes.pods, "pods per job")->capture_default_str();
  app.add_option("--suspended", sizes.suspended, "number of suspended jobs")->capture_default_str();
  app.add_option("--out", out, "JSON file for the results");
  CLI11_PARSE(app, argc, argv);
  try {
    return tilewright::bench::run(sizes, out);
  } catch (const std::exception& error) {
    std::cerr << "tilewright-controller-bench: " << error.what() << '\n';
    return 1;
  }
}
