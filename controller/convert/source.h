// The PyTorchJob that is converted.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "controller/api/pytorchjob.h"
#include "controller/api/training_container.h"

namespace tilewright::convert {

inline constexpr const char* kReplicaSpecs = "spec.pytorchReplicaSpecs";

// The replica that becomes the workers: Worker, or Master in a job without workers. The job must
// have defaults and one of the two.
struct MainReplica {
  explicit MainReplica(const api::PyTorchJob& job);

  const char* type;
  const api::PyTorchReplicaSpec& spec;
  std::string path;  // spec.pytorchReplicaSpecs.Worker
};

struct Source {
  const api::PyTorchJob& written;
  const api::PyTorchJob& job;  // with defaults
  const MainReplica& main;
  const api::TrainingContainer& container;
  const api::Training& training;

  const nlohmann::json& pod() const;
  std::string pod_path(std::string_view field) const;
};

}  // namespace tilewright::convert
