#include "controller/cli/controller.h"

#include <fmt/format.h>
#include <malloc.h>
#include <unistd.h>

#include <iostream>
#include <memory>

#include "common/base/random.h"
#include "common/base/strings.h"
#include "common/base/version.h"
#include "common/contract/environment.h"
#include "common/contract/unknown_variables.h"
#include "common/host/host.h"
#include "common/process/signals.h"
#include "controller/api/names.h"
#include "controller/api/pytorchjob.h"
#include "controller/cli/gang_scheduler_option.h"
#include "controller/cli/kubeconfig_options.h"
#include "controller/client/config.h"
#include "controller/operator/operator.h"
#include "controller/operator/write_fault.h"

namespace tilewright {
namespace {

struct ControllerOptions {
  KubeconfigOptions connection;
  std::string log_level = "info";
  std::string rendezvous_listen, rendezvous_address, tcpstore_listen, tcpstore_address;
  std::string metrics_listen, health_listen;
  controller::Options operator_options;
};

std::int64_t to_seconds(Duration time) {
  return std::chrono::duration_cast<std::chrono::seconds>(time).count();
}

Status parse_address_flag(const char* flag, const std::string& text, net::Address& address) {
  if (text.empty()) return {};
  Result<net::Address> parsed = net::parse_address(text);
  if (!parsed) return Error{ExitCode::kUsage, fmt::format("{}: {}", flag, parsed.error().message)};
  address = *parsed;
  return {};
}

// Checks the flags and fills in the settings that come from the environment.
Status complete_options(ControllerOptions& options, const kube::ClusterConfig& cluster) {
  controller::Options& to = options.operator_options;
  for (const auto& [flag, text, address] :
       {std::tuple{"--rendezvous_listen", &options.rendezvous_listen, &to.rendezvous_listen},
        std::tuple{"--rendezvous_address", &options.rendezvous_address, &to.rendezvous_address},
        std::tuple{"--tcpstore_listen", &options.tcpstore_listen, &to.tcpstore_listen},
        std::tuple{"--tcpstore_address", &options.tcpstore_address, &to.tcpstore_address},
        std::tuple{"--metrics_listen", &options.metrics_listen, &to.metrics_listen},
        std::tuple{"--health_listen", &options.health_listen, &to.health_listen}}) {
    if (Status parsed = parse_address_flag(flag, *text, *address); !parsed) return parsed;
  }
  for (const std::string& name : to.metrics_namespaces) {
    if (api::is_dns1123_label(name)) continue;
    return Error{
        ExitCode::kUsage,
        fmt::format("--metrics_namespaces: found \"{}\", expected names of namespaces", name)};
  }
  const kube::ElectorSettings& election = to.elector;
  if (election.renew_deadline >= election.lease_duration ||
      election.retry_period >= election.renew_deadline) {
    return Error{
        ExitCode::kUsage,
        fmt::format("--leader_elect_lease_duration, _renew_deadline, _retry_period: found "
                    "{}, {} and {} s, expected each to be shorter than the one before",
                    to_seconds(election.lease_duration), to_seconds(election.renew_deadline),
                    to_seconds(election.retry_period))};
  }
  to.instance = environment_variable(env::kPodName);
  if (to.instance.empty()) to.instance = host::host_name();
  to.identity = fmt::format("{}_{}", to.instance, random_uuid());
  if (to.own_namespace.empty()) to.own_namespace = environment_variable(env::kPodNamespace);
  if (to.own_namespace.empty()) to.own_namespace = cluster.default_namespace;
  to.pod_address = environment_variable(env::kPodIp);
  if (to.rendezvous_address.host.empty() && to.pod_address.empty()) {
    return Error{ExitCode::kUsage,
                 "the rendezvous address is not set; expected --rendezvous_address or the "
                 "environment variable POD_IP"};
  }
  return {};
}

// Limits the memory that malloc keeps. By default each of the dozens of threads has an arena of its
// own, and large freed blocks (of lists) are not returned to the system. Fast bins are off because
// consolidating them costs more time than they save with short-lived JSON trees.
void tune_malloc() {
  mallopt(M_ARENA_MAX, 2);
  mallopt(M_MXFAST, 0);
  mallopt(M_MMAP_THRESHOLD, 128 << 10);
  mallopt(M_TRIM_THRESHOLD, 256 << 10);
}

Status run(ControllerOptions& options) {
  tune_malloc();
  const auto log = make_logger(options.log_level);
  for (const std::string& sentence : describe_unknown_variables(environ)) log->warn("{}", sentence);
  auto signals = Signals::install();
  if (!signals) return signals.error();
  const auto cluster = kube::load_config(config_sources(options.connection));
  if (!cluster) return cluster.error();
  if (Status completed = complete_options(options, *cluster); !completed) return completed;
  kube::SenderOptions sender;
  sender.user_agent = fmt::format("tilewright/{}", kVersion);
  const std::string fault = environment_variable(env::kFault);
  if (Status set = controller::install_write_fault(fault, sender); !set) return set;
  auto client = kube::Client::make(*cluster, sender);
  if (!client) return client.error();
  log->info("tilewright {} at {} ({})", kVersion, cluster->server, cluster->source);

  controller::Operator op(**client, options.operator_options, log);
  if (Status started = op.start(); !started) return started;
  while (true) {
    net::wait_ready(signals->fd(), POLLIN, {MonotonicTime::max()});
    const auto signal = signals->next();
    if (signal == SIGINT || signal == SIGTERM) break;
  }
  log->info("stopping");
  op.stop();
  return {};
}

void add_seconds_option(CLI::App& command, const char* flag, Duration& time, int most,
                        const char* help) {
  command
      .add_option_function<int>(
          flag, [&time](int count) { time = std::chrono::seconds(count); }, help)
      ->check(CLI::Range(1, most))
      ->default_str(std::to_string(to_seconds(time)));
}

void add_namespace_options(CLI::App& command, controller::Options& to) {
  command.add_option("--namespace", to.own_namespace,
                     "Namespace of the Lease, the master key Secret and the rendezvous Service; "
                     "default: $POD_NAMESPACE");
  command.add_option("--watch_namespace", to.jobs_namespace,
                     "Reconcile jobs of this namespace only; default: all namespaces");
}

// Also --resync_period, which the help lists among the times.
void add_leader_election_options(CLI::App& command, controller::Options& to) {
  command
      .add_option("--leader_elect", to.elect_leader,
                  "Whether the replicas elect a leader; set false only for a single replica")
      ->capture_default_str();
  command.add_option("--lease_name", to.lease_name, "Name of the Lease for leader election")
      ->capture_default_str();
  constexpr int kHour = 3600;
  add_seconds_option(command, "--resync_period", to.resync_period, 24 * kHour,
                     "Seconds after which all jobs are reconciled again, even if unchanged");
  add_seconds_option(command, "--leader_elect_lease_duration", to.elector.lease_duration, kHour,
                     "Seconds after which another replica may acquire a Lease that is not renewed");
  add_seconds_option(command, "--leader_elect_renew_deadline", to.elector.renew_deadline, kHour,
                     "Seconds after which a leader that cannot renew the Lease stops writing");
  add_seconds_option(command, "--leader_elect_retry_period", to.elector.retry_period, kHour,
                     "Seconds between two attempts to acquire or renew the Lease");
}

void add_rendezvous_options(CLI::App& command, ControllerOptions& options) {
  controller::Options& to = options.operator_options;
  command
      .add_option("--master_key_name", to.master_key_name,
                  "Secret from which the keys of the jobs are derived; created if missing")
      ->capture_default_str();
  command.add_option(
      "--rendezvous_listen", options.rendezvous_listen,
      fmt::format("Listen address of the rendezvous server; default: :{}", kRendezvousPort));
  command.add_option("--rendezvous_address", options.rendezvous_address,
                     "HOST:PORT at which workers connect to the operator; default: the cluster IP "
                     "of the rendezvous Service, whose endpoint is $POD_IP of the leader");
  command
      .add_option("--rendezvous_service", to.rendezvous_service,
                  "Service through which workers connect to the leader")
      ->capture_default_str();
}

void add_pytorchjob_options(CLI::App& command, ControllerOptions& options) {
  controller::Options& to = options.operator_options;
  command.add_flag("--enable_pytorchjobs", to.pytorch_jobs.enabled,
                   "Also run PyTorchJobs of kubeflow.org/v1");
  command.add_flag_callback(
      "--beside_kubeflow", [&to] { to.pytorch_jobs.kubeflow = api::KubeflowOperator::kPresent; },
      "Kubeflow's training operator also runs in the cluster: run only PyTorchJobs whose "
      "spec.runPolicy.managedBy names this operator");
  command.add_option(
      "--pytorchjobs_managed_by", to.pytorch_jobs.manager,
      fmt::format("Value of spec.runPolicy.managedBy that names this operator, in addition to {}",
                  kPyTorchJobManager));
  command
      .add_option("--pytorchjob_store", to.pytorchjob_store,
                  "Whether torchrun's agents of elastic PyTorchJobs rendezvous through a TCPStore "
                  "of the operator; false: through worker 0, as with Kubeflow's operator. The "
                  "network must keep the source addresses of the pods")
      ->capture_default_str();
  command.add_option("--tcpstore_listen", options.tcpstore_listen,
                     fmt::format("Listen address of the TCPStores; default: :{}", kTcpStorePort));
  command.add_option("--tcpstore_address", options.tcpstore_address,
                     "HOST:PORT at which torchrun's agents connect to the TCPStores; default: the "
                     "port tcpstore of the rendezvous Service, none with --rendezvous_address");
}

void add_server_options(CLI::App& command, ControllerOptions& options) {
  command.add_option(
      "--metrics_listen", options.metrics_listen,
      fmt::format("Listen address of /metrics; default: :{}", kControllerMetricsPort));
  command.add_option(
      "--health_listen", options.health_listen,
      fmt::format("Listen address of /healthz and /readyz; default: :{}", kControllerHealthPort));
  command
      .add_option(
          "--metrics_namespaces", options.operator_options.metrics_namespaces,
          "Namespaces, separated by commas, that may reach /metrics of the workers, in addition to "
          "that of the job; default: all")
      ->delimiter(',');
}

void add_concurrency_options(CLI::App& command, controller::Options& to) {
  command.add_option("--reconcilers", to.reconcilers, "Number of concurrent reconciles")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
  command
      .add_option("--parallel_requests", to.parallel_requests,
                  "Number of API requests, beyond one for each reconciler, that create or delete "
                  "objects concurrently")
      ->check(CLI::Range(1, 256))
      ->capture_default_str();
}

}  // namespace

void add_controller_command(CLI::App& app, int& exit_code) {
  const auto options = std::make_shared<ControllerOptions>();
  controller::Options& to = options->operator_options;
  CLI::App* command = app.add_subcommand(
      "controller",
      "Run the operator, which reconciles the TrainJobs and PyTorchJobs of a cluster");
  // --help lists the options in this order.
  add_kubeconfig_options(*command, options->connection);
  add_namespace_options(*command, to);
  add_leader_election_options(*command, to);
  add_rendezvous_options(*command, *options);
  add_gang_scheduler_option(*command, to.gang_scheduler);
  add_pytorchjob_options(*command, *options);
  add_server_options(*command, *options);
  add_concurrency_options(*command, to);
  command->add_option("--log_level", options->log_level, "Lowest level of messages to log")
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
