// tilewright-controller-bench: 200 jobs of 5 pods created at once, beside parallel posters that
// make the same objects without any operator, in one run on one machine; and 2,000 suspended jobs.
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
#include "common/base/commit.h"
#include "controller/api/defaults.h"
#include "controller/api/encode.h"
#include "controller/manager/resources.h"
#include "controller/reconcile/objects.h"
#include "tests/support/object_watch.h"

namespace tilewright::bench {
namespace {

using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kPosters = 8;
constexpr int kNodes = 20;

struct Sizes {
  int jobs = 200;
  int pods = 5;  // of each job
  int suspended = 2000;
  int single = 21;  // jobs made one after the other, for the latency of one
};

double since(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values.empty() ? 0 : values[values.size() / 2];
}

api::TrainJob make_job(const std::string& name, const std::string& space, int pods) {
  api::TrainJob job;
  job.metadata.name = name;
  job.metadata.namespace_name = space;
  job.spec.trainer = {"mrpc", "work:model", "work:data", "work:out", {}, {}};
  job.spec.volumes = {{"work", {}, {{"emptyDir", json::object()}}}};
  job.spec.worker.replicas = pods;
  job.spec.trainer.flags["per_device_train_batch_size"] = "32";
  return job;
}

// Runs `work(i)` for i below `count` from several threads.
void side_by_side(int count, const std::function<void(int)>& work) {
  std::atomic<int> next{0};
  std::vector<std::thread> threads;
  threads.reserve(kPosters);
  for (int i = 0; i < kPosters; ++i) {
    threads.emplace_back([&] {
      for (int task = next++; task < count; task = next++) work(task);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// When which job and pod got how far.
class Chronicle {
 public:
  Chronicle(kube::Client& client, const std::string& space)
      : jobs_(client, manager::resource::train_jobs(), space,
              [this](const std::string& name, const json& job) { note_job(name, job); }),
        pods_(client, kube::resource::pods(), space,
              [this](const std::string& name, const json& pod) { note_pod(name, pod); }) {}

  struct Life {
    int pods = 0, running = 0, ended = 0;
    Clock::time_point all_there, all_running, all_ended, said_running, said_succeeded;
  };
  void expect(int pods_a_job) { pods_a_job_ = pods_a_job; }
  bool wait_until(const std::function<bool(const std::map<std::string, Life>&)>& holds) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(3), [&] { return holds(lives_); });
  }
  std::map<std::string, Life> lives() {
    const std::lock_guard lock(mutex_);
    return lives_;
  }

 private:
  void note_job(const std::string& name, const json& job) {
    const Clock::time_point now = Clock::now();
    const std::string phase =
        job.is_null() ? "" : job.value(json::json_pointer("/status/phase"), "");
    {
      const std::lock_guard lock(mutex_);
      Life& life = lives_[name];
      if (phase == "Running" && life.said_running == Clock::time_point()) life.said_running = now;
      if (phase == "Succeeded") {
        if (life.said_running == Clock::time_point()) life.said_running = now;
        life.said_succeeded = now;
      }
    }
    changed_.notify_all();
  }
  void note_pod(const std::string& name, const json& pod) {
    if (pod.is_null()) return;
    const Clock::time_point now = Clock::now();
    const std::string phase = pod["status"].value("phase", "");
    {
      const std::lock_guard lock(mutex_);
      Life& life = lives_[name.substr(0, name.rfind("-worker-"))];
      std::string& before = phases_[name];
      if (before.empty() && ++life.pods == pods_a_job_) life.all_there = now;
      if (before != "Running" && before != "Succeeded" &&
          (phase == "Running" || phase == "Succeeded") && ++life.running == pods_a_job_) {
        life.all_running = now;
      }
      if (before != "Succeeded" && phase == "Succeeded" && ++life.ended == pods_a_job_) {
        life.all_ended = now;
      }
      before = phase;
    }
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int pods_a_job_ = 0;
  std::map<std::string, Life> lives_;
  std::map<std::string, std::string> phases_;
  testing::ObjectWatch jobs_, pods_;  // last: their threads use all of the above
};

Clock::time_point last_of(const std::map<std::string, Chronicle::Life>& lives,
                          Clock::time_point Chronicle::Life::*moment) {
  Clock::time_point last;
  for (const auto& [name, life] : lives) last = std::max(last, life.*moment);
  return last;
}

json spread(const std::map<std::string, Chronicle::Life>& lives,
            Clock::time_point Chronicle::Life::*from, Clock::time_point Chronicle::Life::*to) {
  std::vector<double> lags;
  lags.reserve(lives.size());
  for (const auto& [name, life] : lives) lags.push_back(since(life.*from, life.*to));
  return {{"median", median(lags)}, {"most", *std::ranges::max_element(lags)}};
}

auto all_have(const Sizes& sizes, int Chronicle::Life::*count) {
  return [&sizes, count](const auto& lives) {
    return std::ranges::count_if(lives, [&](const auto& entry) {
             return entry.second.*count == sizes.pods;
           }) == sizes.jobs;
  };
}

auto all_succeeded(int jobs) {
  return [jobs](const auto& lives) {
    return std::ranges::count_if(lives, [](const auto& entry) {
             return entry.second.said_succeeded != Clock::time_point();
           }) == jobs;
  };
}

// The same objects as the operator makes, from 8 clients.
json measure_posters(FakeCluster& cluster, const Sizes& sizes) {
  cluster.make_namespace("posters");
  Chronicle chronicle(cluster.client(), "posters");
  chronicle.expect(sizes.pods);
  const kube::WriteGuard guard = kube::WriteGuard::unfenced();
  const auto start = Clock::now();
  side_by_side(sizes.jobs, [&](int i) {
    api::TrainJob job = make_job(fmt::format("job-{}", i), "posters", sizes.pods);
    api::apply_defaults(job);
    job.metadata.uid = fmt::format("00000000-0000-4000-8000-{:012}", i);
    const auto post = [&](const kube::ResourceType& type, json object) {
      object["metadata"].erase("ownerReferences");  // of a job that is not there
      need(cluster.client().create(guard, type, "posters", object, soon()));
    };
    post(kube::resource::secrets(), reconcile::build_secret(job, std::string(64, '0'), "00000000"));
    post(kube::resource::services(), reconcile::build_service(job));
    post(kube::resource::network_policies(), reconcile::build_network_policy(job));
    for (int pod = 0; pod < sizes.pods; ++pod) {
      post(kube::resource::pods(), reconcile::build_pod(job, pod, {"127.0.0.1:1", "00000000"}));
    }
  });
  if (!chronicle.wait_until(all_have(sizes, &Chronicle::Life::ended))) {
    throw std::runtime_error("the posters' pods do not end");
  }
  const auto lives = chronicle.lives();
  const double there = since(start, last_of(lives, &Chronicle::Life::all_there));
  return {{"seconds_to_all_pods", there},
          {"pods_per_second", sizes.jobs * sizes.pods / there},
          {"seconds_to_all_ended", since(start, last_of(lives, &Chronicle::Life::all_ended))}};
}

std::uint64_t sum_of(const std::map<std::string, std::uint64_t>& counts) {
  std::uint64_t sum = 0;
  for (const auto& [kind, count] : counts) sum += count;
  return sum;
}

// In a cluster with nodes and nothing to look after.
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
  const auto create = [&](const std::string& name, const std::string& space, int pods) {
    need(cluster.client().create(guard, manager::resource::train_jobs(), space,
                                 api::to_json(make_job(name, space, pods)), soon()));
  };

  cluster.make_namespace("single");
  std::vector<double> latencies;
  {
    Chronicle chronicle(cluster.client(), "single");
    chronicle.expect(sizes.pods);
    for (int i = 0; i < sizes.single; ++i) {
      const std::string name = fmt::format("one-{}", i);
      const auto start = Clock::now();
      create(name, "single", sizes.pods);
      const bool came = chronicle.wait_until([&](const auto& lives) {
        const auto life = lives.find(name);
        return life != lives.end() && life->second.said_running != Clock::time_point();
      });
      if (!came) throw std::runtime_error(name + " does not run");
      latencies.push_back(since(start, chronicle.lives()[name].all_there));
    }
    if (!chronicle.wait_until(all_succeeded(sizes.single))) {
      throw std::runtime_error("the jobs made one after the other do not succeed");
    }
  }
  result["one_job_to_its_pods_seconds"] = median(latencies);

  cluster.make_namespace("crowd");
  Chronicle chronicle(cluster.client(), "crowd");
  chronicle.expect(sizes.pods);
  const double cpu_before = controller.cpu_seconds();
  const auto requests_before = controller.requests();
  const std::uint64_t looks_before = controller.looks();
  const auto start = Clock::now();
  side_by_side(sizes.jobs, [&](int i) { create(fmt::format("job-{}", i), "crowd", sizes.pods); });
  const double created = since(start, Clock::now());
  if (!chronicle.wait_until(all_succeeded(sizes.jobs))) {
    throw std::runtime_error("the jobs do not succeed");
  }
  const auto lives = chronicle.lives();
  const double there = since(start, last_of(lives, &Chronicle::Life::all_there));
  // Events are posted a moment after.
  net::wait_ready(-1, 0, net::within(std::chrono::seconds(3)));
  result["jobs_created_seconds"] = created;
  result["seconds_to_all_pods"] = there;
  result["pods_per_second"] = sizes.jobs * sizes.pods / there;
  result["seconds_to_all_succeeded"] =
      since(start, last_of(lives, &Chronicle::Life::said_succeeded));
  result["running_after_last_pod"] =
      spread(lives, &Chronicle::Life::all_running, &Chronicle::Life::said_running);
  result["succeeded_after_last_pod"] =
      spread(lives, &Chronicle::Life::all_ended, &Chronicle::Life::said_succeeded);
  auto requests = controller.requests();
  for (const auto& [kind, count] : requests_before) requests[kind] -= count;
  result["requests_per_job"] = static_cast<double>(sum_of(requests)) / sizes.jobs;
  result["looks_per_job"] = static_cast<double>(controller.looks() - looks_before) / sizes.jobs;
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
  side_by_side(sizes.suspended, [&](int i) {
    api::TrainJob job = make_job(fmt::format("job-{}", i), "suspended", sizes.pods);
    job.spec.run_policy.suspend = true;
    need(cluster.client().create(guard, manager::resource::train_jobs(), "suspended",
                                 api::to_json(job), soon()));
  });
  const auto all_said = [&](const auto& jobs) {
    return std::ranges::count_if(jobs, [](const auto& entry) {
             return entry.second.value(json::json_pointer("/status/phase"), "") == "Suspended";
           }) == sizes.suspended;
  };
  testing::ObjectWatch jobs(cluster.client(), manager::resource::train_jobs(), "suspended");
  json result;
  {
    // The first one writes their status.
    OperatorProcess first(cluster.control_plane(), "operator");
    if (!jobs.wait_until(all_said, std::chrono::minutes(10))) {
      throw std::runtime_error("the suspended jobs are not said to be");
    }
    result["peak_mib_at_first"] = first.peak_mib();
  }
  const OperatorProcess again(cluster.control_plane(), "operator");
  result["jobs"] = sizes.suspended;
  result["start_to_synced_seconds"] = again.seconds_to_ready();
  net::wait_ready(-1, 0, net::within(std::chrono::seconds(5)));
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
  report["posters"] = measure_posters(cluster, sizes);
  report["operator"] = measure_operator(cluster, sizes);
  report["share_of_the_posters_rate"] = report["operator"]["pods_per_second"].get<double>() /
                                        report["posters"]["pods_per_second"].get<double>();
  std::cout << report.dump(2) << '\n';
  if (!out.empty()) std::ofstream(out) << report.dump(2) << '\n';
  return 0;
}

}  // namespace
}  // namespace tilewright::bench

int main(int argc, char** argv) {
  CLI::App app("What the controller makes of many jobs at once, beside posters without it",
               "tilewright-controller-bench");
  tilewright::bench::Sizes sizes;
  std::string out;
  app.add_option("--jobs", sizes.jobs, "created at once")->capture_default_str();
  app.add_option("--pods", sizes.pods, "of each job")->capture_default_str();
  app.add_option("--suspended", sizes.suspended, "jobs in store at a start")->capture_default_str();
  app.add_option("--out", out, "a JSON file for the figures");
  CLI11_PARSE(app, argc, argv);
  try {
    return tilewright::bench::run(sizes, out);
  } catch (const std::exception& error) {
    std::cerr << "tilewright-controller-bench: " << error.what() << '\n';
    return 1;
  }
}
