// Checks spec.worker: image, resources, shared memory, environment, scheduling.
#include <set>

#include "common/contract/nearest.h"
#include "controller/api/command.h"
#include "controller/api/names.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

constexpr std::int64_t kMilli = 1000;
// The program and its libraries need this much.
constexpr std::int64_t kMinMemoryBytes = std::int64_t{128} << 20;

void validate_resources(const Worker& worker, FindingCollector& collector) {
  const std::vector<std::string_view> plain = {"cpu", "memory", "ephemeral-storage"};
  for (const auto& [name, amount] : worker.resources) {
    const std::string path = member_path("spec.worker.resources", name);
    const bool known = std::find(plain.begin(), plain.end(), name) != plain.end() ||
                       name.starts_with("hugepages-") ||
                       (name.find('/') != std::string::npos && is_label_key(name));
    if (!known) {
      const std::string_view near = nearest_name(name, plain);
      collector.error(path, near.empty()
                                ? "unknown resource, expected cpu, memory, ephemeral-storage or "
                                  "an extended resource such as example.org/device"
                                : fmt::format("unknown resource; did you mean {}?", near));
    } else if (amount.milli <= 0) {
      collector.error(path, fmt::format("found {}, expected a quantity above zero", amount.text));
    } else if (is_gpu_resource(name)) {
      collector.warn(path, fmt::format("found {}: Tilewright computes on CPUs only, so the workers "
                                       "reserve it and do not use it",
                                       amount.text));
    }
  }
  const Quantity& cpu = worker.resources.at("cpu");
  if (cpu.milli > 0 && cpu.milli % kMilli != 0) {
    collector.warn(
        "spec.worker.resources.cpu",
        fmt::format("found {}, expected an integer: the kubelet's static CPU manager cannot pin a "
                    "worker with a fraction of a CPU",
                    cpu.text));
  }
  const Quantity& memory = worker.resources.at("memory");
  if (memory.milli > 0 && memory.rounded_up() < kMinMemoryBytes) {
    collector.error("spec.worker.resources.memory",
                    fmt::format("found {} ({} bytes), expected at least 128Mi", memory.text,
                                memory.rounded_up()));
  } else if (worker.shared_memory->milli <= 0) {
    collector.error(
        "spec.worker.sharedMemory",
        fmt::format("found {}, expected a quantity above zero", worker.shared_memory->text));
  } else if (memory.milli > 0 && worker.shared_memory->milli >= memory.milli) {
    collector.error(
        "spec.worker.sharedMemory",
        fmt::format("found {}, expected less than {}, the value of spec.worker.resources.memory: "
                    "pages of /dev/shm count against it",
                    worker.shared_memory->text, memory.text));
  }
}

void validate_env(const Worker& worker, FindingCollector& collector) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < worker.env.size(); ++i) {
    const EnvVar& variable = worker.env[i];
    const std::string path = element_path("spec.worker.env", i);
    if (!is_env_name(variable.name)) {
      collector.error(path + ".name",
                      fmt::format("found {}, expected the name of an environment variable",
                                  describe_value(variable.name)));
    } else if (is_runtime_variable(variable.name)) {
      report_reserved_variable(variable.name, path, collector);
    } else if (!seen.insert(variable.name).second) {
      collector.error(path + ".name",
                      fmt::format("found {} twice, expected each name once", variable.name));
    }
    if (!variable.value.empty() && !variable.value_from.is_null()) {
      collector.error(path, "found value and valueFrom, expected one of them");
    }
    if (variable.value.find('\0') != std::string::npos) {
      collector.error(path + ".value", "found a zero byte, expected a string without one");
    }
  }
}

void validate_scheduling(const Worker& worker, FindingCollector& collector) {
  for (const auto& [key, value] : worker.node_selector) {
    if (!is_label_key(key) || !is_label_value(value)) {
      collector.error(
          member_path("spec.worker.nodeSelector", key),
          fmt::format("found {}, expected a node's label and its value", describe_value(value)));
    }
  }
  const std::pair<const char*, const std::string*> names[] = {
      {"serviceAccountName", &worker.service_account_name},
      {"priorityClassName", &worker.priority_class_name}};
  for (const auto& [field, name] : names) {
    if (!name->empty() && !is_dns1123_subdomain(*name)) {
      collector.error(std::string("spec.worker.") + field,
                      fmt::format("found {}, expected lower-case letters, digits, '-' and '.'",
                                  describe_value(*name)));
    }
  }
  for (std::size_t i = 0; i < worker.image_pull_secrets.size(); ++i) {
    if (!is_dns1123_subdomain(worker.image_pull_secrets[i])) {
      collector.error(element_path("spec.worker.imagePullSecrets", i),
                      fmt::format("found {}, expected the name of a secret",
                                  describe_value(worker.image_pull_secrets[i])));
    }
  }
}

}  // namespace

void report_reserved_variable(const std::string& name, const std::string& path,
                              FindingCollector& collector) {
  collector.error(
      path + ".name",
      fmt::format("found {}, expected a name that the operator does not set itself", name));
}

void validate_worker(const TrainJob& job, FindingCollector& collector) {
  const Worker& worker = job.spec.worker;
  if (worker.image.find_first_of(" \t\n") != std::string::npos) {
    collector.error("spec.worker.image",
                    fmt::format("found {}, expected an image name without whitespace",
                                describe_value(worker.image)));
  }
  validate_resources(worker, collector);
  validate_env(worker, collector);
  validate_scheduling(worker, collector);
}

}  // namespace tilewright::api
