// What the container of a PyTorchJob that trains does natively: its command, and the directories
// that it mounts.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/result.h"
#include "common/contract/training_flags.h"
#include "common/launch/command.h"
#include "controller/api/expansion.h"
#include "controller/api/pytorchjob.h"

namespace tilewright::api {

// Whether the operator sets a variable in the container of a replica of the job.
enum class SetByOperator {
  kNo,
  kUnlessGiven,  // and perhaps not at all
  kOverrides,    // an entry of that name in env has no effect
};
// The spec must have defaults.
SetByOperator set_by_operator(std::string_view name, const PyTorchJobSpec& spec,
                              const PyTorchReplicaSpec& replica);

// A word of command or args, with $(NAME) expanded as the kubelet does. Values that only the pod
// knows are placeholders, see launch/unknown_value.h.
struct Word {
  std::string text;
  std::string path;  // of its field
};

// A command that the worker image runs natively.
struct Training {
  launch::Command command;
  TrainingArguments arguments;
};

class TrainingContainer {
 public:
  // `replica` is Master or Worker of the spec and has a container named pytorch; `path` is that of
  // the replica's field. Both outlive this object.
  TrainingContainer(const PyTorchJobSpec& spec, const PyTorchReplicaSpec& replica,
                    const std::string& path);

  const nlohmann::json& json() const { return *json_; }
  const std::string& path() const { return path_; }  // ....containers[0]
  const std::vector<Word>& words() const { return words_; }
  // The variables of env. Values that only the pod knows are placeholders.
  const Environment& environment() const { return environment_; }

  // Values that only the pod knows remain in the command as placeholders. Error: why the command
  // does not run natively; kUsage for a flag of the script, also if only the pod knows the
  // value of one that is no string, or of torchrun's --nproc_per_node.
  Result<Training> training() const;

  // The field of the word that gives a flag of the script.
  std::string path_of_flag(const std::string& name) const;

  // Where an absolute path is on the volumes.
  struct Place {
    std::string volume;
    std::string relative;  // on the volume; empty: the volume itself
    // As in spec.trainer: VOLUME:relative/path.
    std::string trainer_path() const { return volume + ":" + relative; }
    bool operator==(const Place&) const = default;
  };
  // nullopt: on no volume, as every relative path. Error: the mount's subPathExpr has a variable
  // without a plain value; the message continues "found PATH".
  Result<std::optional<Place>> place_of(const std::string& path_in_container) const;

 private:
  Result<Training> read_training() const;
  // Of a variable of the container; a placeholder if only the pod knows it. nullopt: not set.
  std::optional<std::string> value_of(const std::string& name) const;
  // Whether a source of envFrom may have the variable.
  bool may_be_in_env_from(std::string_view name) const;
  // As the kubelet expands command, args and subPathExpr.
  std::string expanded(std::string_view text) const;
  // subPath, or subPathExpr as the kubelet expands it.
  Result<std::string> sub_path_of(const nlohmann::json& mount) const;

  const PyTorchJobSpec* spec_;
  const PyTorchReplicaSpec* replica_;
  const nlohmann::json* json_;
  std::string path_;
  std::vector<Word> words_;
  Environment environment_;
};

// The number of processes in each pod.
struct GivenProcesses {
  std::string text;  // auto, cpu, gpu, xpu or an integer; not checked
  std::string path;  // of the field that gives it

  // nullopt: one for each NUMA node, or no number of processes.
  std::optional<std::int64_t> number() const;
  // "found gpu, expected ..." if Tilewright's trainer does not have this; empty otherwise.
  std::string problem() const;
};
// As the fields of the PyTorchJob give it, which must have defaults.
GivenProcesses given_processes(const PyTorchJobSpec& spec);
// As the native training has it: torchrun's flag overrides the fields, and python alone starts one
// process.
GivenProcesses given_processes(const PyTorchJobSpec& spec, const TrainingContainer& container,
                               const launch::Command& command);

}  // namespace tilewright::api
