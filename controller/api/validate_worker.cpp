// The worker block: image, resources, shared memory, environment, scheduling.
#include <set>

#include "common/contract/nearest.h"
#include "controller/api/command.h"
#include "controller/api/names.h"
#include "controller/api/validate_parts.h"

namespace tilewright::api {
namespace {

constexpr std::int64_t kMilli = 1000;
constexpr std::int64_t kLeastMemory = std::int64_t{128}
                                      << 20;  // bytes: the program and its libraries

void validate_resources(const Worker& worker, Judge& judge) {
  const std::vector<std::string_view> plain = {"cpu", "memory", "ephemeral-storage"};
  for (const auto& [name, amount] : worker.resources) {
    const std::string path = member_path("spec.worker.resources", name);
    const bool known = std::find(plain.begin(), plain.end(), name) != plain.end() ||
                       name.starts_with("hugepages-") ||
                       (name.find('/') != std::string::npos && is_label_key(name));
    if (!known) {
      const std::string_view near = nearest_name(name, plain);
      judge.refuse(path,
                   near.empty()
                       ? "found no resource's name, expected cpu, memory, ephemeral-storage or "
                         "an extended one such as example.org/device"
                       : fmt::format("is not a known resource; did you mean {}?", near));
    } else if (amount.milli <= 0) {
      judge.refuse(path, fmt::format("found {}, expected more than nothing", amount.text));
    }
  }
  const Quantity& cpu = worker.resources.at("cpu");
  if (cpu.milli > 0 && cpu.milli % kMilli != 0) {
    judge.warn("spec.worker.resources.cpu",
               fmt::format("found {}, which is no whole number of CPUs: the kubelet's static CPU "
                           "manager cannot pin such a worker",
                           cpu.text));
  }
  const Quantity& memory = worker.resources.at("memory");
  if (memory.milli > 0 && memory.rounded_up() < kLeastMemory) {
    judge.refuse("spec.worker.resources.memory",
                 fmt::format("found {} ({} bytes), expected at least 128Mi", memory.text,
                             memory.rounded_up()));
  } else if (worker.shared_memory->milli <= 0) {
    judge.refuse("spec.worker.sharedMemory",
                 fmt::format("found {}, expected more than nothing", worker.shared_memory->text));
  } else if (memory.milli > 0 && worker.shared_memory->milli >= memory.milli) {
    judge.refuse(
        "spec.worker.sharedMemory",
        fmt::format("found {}, expected less than {}, as spec.worker.resources.memory says: "
                    "pages of /dev/shm count against it",
                    worker.shared_memory->text, memory.text));
  }
}

void validate_env(const Worker& worker, Judge& judge) {
  std::set<std::string> seen;
  for (std::size_t i = 0; i < worker.env.size(); ++i) {
    const EnvVar& variable = worker.env[i];
    const std::string path = element_path("spec.worker.env", i);
    if (!is_env_name(variable.name)) {
      judge.refuse(path + ".name",
                   fmt::format("found {}, expected a variable's name", shown(variable.name)));
    } else if (is_runtime_variable(variable.name)) {
      refuse_runtime_variable(variable.name, path, judge);
    } else if (!seen.insert(variable.name).second) {
      judge.refuse(path + ".name",
                   fmt::format("found {} twice, expected each name once", variable.name));
    }
    if (!variable.value.empty() && !variable.value_from.is_null()) {
      judge.refuse(path, "found value and valueFrom, expected one of them");
    }
    if (variable.value.find('\0') != std::string::npos) {
      judge.refuse(path + ".value", "found a zero byte, expected text");
    }
  }
}

void validate_scheduling(const Worker& worker, Judge& judge) {
  for (const auto& [key, value] : worker.node_selector) {
    if (!is_label_key(key) || !is_label_value(value)) {
      judge.refuse(member_path("spec.worker.nodeSelector", key),
                   fmt::format("found {}, expected a node's label and its value", shown(value)));
    }
  }
  const std::pair<const char*, const std::string*> names[] = {
      {"serviceAccountName", &worker.service_account_name},
      {"priorityClassName", &worker.priority_class_name}};
  for (const auto& [field, name] : names) {
    if (!name->empty() && !is_dns1123_subdomain(*name)) {
      judge.refuse(
          std::string("spec.worker.") + field,
          fmt::format("found {}, expected lower-case letters, digits, '-' and '.'", shown(*name)));
    }
  }
  for (std::size_t i = 0; i < worker.image_pull_secrets.size(); ++i) {
    if (!is_dns1123_subdomain(worker.image_pull_secrets[i])) {
      judge.refuse(
          element_path("spec.worker.imagePullSecrets", i),
          fmt::format("found {}, expected a secret's name", shown(worker.image_pull_secrets[i])));
    }
  }
}

}  // namespace

void refuse_runtime_variable(const std::string& name, const std::string& path, Judge& judge) {
  judge.refuse(path + ".name",
               fmt::format("found {}, expected a name that the runtime does not set itself", name));
}

void validate_worker(const TrainJob& job, Judge& judge) {
  constexpr std::int64_t kHighestId = (std::int64_t{1} << 31) - 1;
  constexpr std::int64_t kLongestGrace = 24 * 3600;
  const Worker& worker = job.spec.worker;
  if (worker.image.find_first_of(" \t\n") != std::string::npos) {
    judge.refuse(
        "spec.worker.image",
        fmt::format("found {}, expected an image's name without blanks", shown(worker.image)));
  }
  validate_resources(worker, judge);
  validate_env(worker, judge);
  validate_scheduling(worker, judge);
  judge.require_range("spec.worker.runAsUser", worker.run_as_user, 1, kHighestId);
  judge.require_range("spec.worker.fsGroup", worker.fs_group, 1, kHighestId);
  judge.require_range("spec.worker.terminationGracePeriodSeconds",
                      worker.termination_grace_period_seconds, 0, kLongestGrace);
}

}  // namespace tilewright::api
