#include "controller/cli/controller.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <array>
#include <iostream>
#include <memory>

#include "common/base/text.h"
#include "common/base/version.h"
#include "common/contract/environment.h"
#include "controller/kube/config.h"
#include "controller/local/job_store.h"
#include "controller/local/signals.h"
#include "controller/manager/manager.h"
#include "controller/manager/write_fault.h"

namespace tilewright {
namespace {

struct ControllerOptions {
  std::string kubeconfig, context, log_level = "info";
  bool allow_insecure = false;
  std::string rendezvous_listen, rendezvous_address, metrics_listen, health_listen;
  manager::Options manager;
};

std::int64_t whole_seconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "tilewright";
}

Status take_address(const char* flag, const std::string& text, net::Address& address) {
  if (text.empty()) return {};
  Result<net::Address> parsed = net::parse_address(text);
  if (!parsed) return Error{ExitCode::kUsage, fmt::format("{}: {}", flag, parsed.error().message)};
  address = *parsed;
  return {};
}

// What was not said on the command line, from the pod's environment.
Status complete(ControllerOptions& options, const kube::ClusterConfig& cluster) {
  manager::Options& to = options.manager;
  for (const auto& [flag, text, address] :
       {std::tuple{"--rendezvous_listen", &options.rendezvous_listen, &to.rendezvous_listen},
        std::tuple{"--rendezvous_address", &options.rendezvous_address, &to.rendezvous_address},
        std::tuple{"--metrics_listen", &options.metrics_listen, &to.metrics_listen},
        std::tuple{"--health_listen", &options.health_listen, &to.health_listen}}) {
    if (Status taken = take_address(flag, *text, *address); !taken) return taken;
  }
  const kube::ElectorSettings& election = to.elector;
  if (election.renew_deadline >= election.lease_duration ||
      election.retry_period >= election.renew_deadline) {
    return Error{
        ExitCode::kUsage,
        fmt::format("--leader_elect_lease_duration, _renew_deadline, _retry_period: found "
                    "{}, {} and {} s, expected each to be shorter than the one before",
                    whole_seconds(election.lease_duration), whole_seconds(election.renew_deadline),
                    whole_seconds(election.retry_period))};
  }
  to.instance = environment_variable("POD_NAME");
  if (to.instance.empty()) to.instance = host_name();
  to.identity = fmt::format("{}_{}", to.instance, local::random_uid());
  if (to.own_namespace.empty()) to.own_namespace = environment_variable("POD_NAMESPACE");
  if (to.own_namespace.empty()) to.own_namespace = cluster.default_namespace;
  to.pod_address = environment_variable("POD_IP");
  if (to.rendezvous_address.host.empty() && to.pod_address.empty()) {
    return Error{ExitCode::kUsage,
                 "workers could not find the rendezvous: found neither --rendezvous_address nor "
                 "the variable POD_IP, expected one of them"};
  }
  return {};
}

// Dozens of threads take turns at little work: an arena for each would keep many times what is in
// use, and so would blocks of a list's size that are not given back. Fast bins are gathered up
// again and again while trees of JSON come and go, which costs more than they save.
void spare_memory() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MXFAST, 0);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

Status run(ControllerOptions& options) {
  spare_memory();
  const auto log = make_logger("controller", options.log_level);
  auto signals = local::Signals::take_over();
  if (!signals) return signals.error();
  kube::ConfigSources sources = kube::config_sources_of_environment();
  sources.kubeconfig = options.kubeconfig;
  sources.context = options.context;
  sources.allow_insecure = options.allow_insecure;
  const auto cluster = kube::load_config(sources);
  if (!cluster) return cluster.error();
  if (Status completed = complete(options, *cluster); !completed) return completed;
  kube::SenderOptions sender;
  sender.user_agent = fmt::format("tilewright/{}", kVersion);
  const std::string fault = environment_variable(env::kFault);
  if (Status set = manager::install_write_fault(fault, sender); !set) return set;
  auto client = kube::Client::make(*cluster, sender);
  if (!client) return client.error();
  log->info("tilewright {} at {} ({})", kVersion, cluster->server, cluster->source);

  manager::Manager manager(**client, options.manager, log);
  if (Status started = manager.start(); !started) return started;
  while (true) {
    net::wait_ready(signals->fd(), POLLIN, {MonotonicTime::max()});
    const auto signal = signals->next();
    if (signal == SIGINT || signal == SIGTERM) break;
  }
  log->info("stopping");
  manager.stop();
  return {};
}

}  // namespace

void add_controller_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ControllerOptions>();
  manager::Options& to = options->manager;
  CLI::App* command = app.add_subcommand(
      "controller", "Runs the operator: looks after the TrainJobs of a Kubernetes cluster");
  command->add_option("--kubeconfig", options->kubeconfig,
                      "Where the cluster is; by default $KUBECONFIG, else the pod's own, else "
                      "~/.kube/config");
  command->add_option("--context", options->context, "Of the kubeconfig, in place of its current");
  command->add_flag("--allow_insecure", options->allow_insecure,
                    "Heed insecure-skip-tls-verify of a kubeconfig, which is refused otherwise");
  command->add_option("--namespace", to.own_namespace,
                      "Of the lease, the master key and the rendezvous' Service; by default "
                      "$POD_NAMESPACE");
  command->add_option("--watch_namespace", to.jobs_namespace,
                      "Look after the jobs of this namespace only; by default of all");
  command->add_option("--leader_elect", to.elect_leader, "Whether replicas elect a leader")
      ->capture_default_str();
  command->add_option("--lease_name", to.lease_name, "The Lease of that election")
      ->capture_default_str();
  constexpr int kHour = 3600;
  const std::tuple<const char*, Duration*, int, const char*> times[] = {
      {"--resync_period", &to.resync_period, 24 * kHour,
       "Seconds between two looks at everything, whatever events have told"},
      {"--leader_elect_lease_duration", &to.elector.lease_duration, kHour,
       "Seconds after which another replica takes the Lease of one that is not heard of"},
      {"--leader_elect_renew_deadline", &to.elector.renew_deadline, kHour,
       "Seconds after which a leader that could not renew the Lease writes nothing any more"},
      {"--leader_elect_retry_period", &to.elector.retry_period, kHour,
       "Seconds between two tries to get the Lease or to renew it"}};
  for (const auto& [flag, time, most, help] : times) {
    command
        ->add_option_function<int>(
            flag, [time = time](int count) { *time = std::chrono::seconds(count); }, help)
        ->check(CLI::Range(1, most))
        ->default_str(std::to_string(whole_seconds(*time)));
  }
  command
      ->add_option("--master_key_name", to.master_key_name,
                   "The Secret from which the jobs' keys are derived; made if it is missing")
      ->capture_default_str();
  command->add_option("--rendezvous_listen", options->rendezvous_listen,
                      fmt::format("Where workers are awaited; by default :{}", kRendezvousPort));
  command->add_option("--rendezvous_address", options->rendezvous_address,
                      "HOST:PORT that workers are given; by default that of the Service, which is "
                      "led to $POD_IP");
  command->add_option("--rendezvous_service", to.rendezvous_service, "The name of that Service")
      ->capture_default_str();
  command->add_option(
      "--metrics_listen", options->metrics_listen,
      fmt::format("Where /metrics is served; by default :{}", kControllerMetricsPort));
  command->add_option(
      "--health_listen", options->health_listen,
      fmt::format("Where /healthz and /readyz are served; by default :{}", kControllerHealthPort));
  command->add_option("--reconcilers", to.reconcilers, "Jobs looked at side by side")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      ->add_option("--parallel_requests", to.parallel_requests,
                   "Pods created side by side, of all jobs together")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command->add_option("--log_level", options->log_level, "How much to tell")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error"}))
      ->capture_default_str();
  command->callback([options, &exit_code] {
    const Status done = run(*options);
    if (done) return;
    std::cerr << "tilewright controller: " << done.error().message << '\n';
    exit_code = static_cast<int>(done.error().code);
  });
}

}  // namespace tilewright
