// spec.volumes of the TrainJob: the volumes of the pod that the trainer's paths and variables use.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "common/base/result.h"
#include "controller/convert/draft.h"
#include "controller/convert/source.h"

namespace tilewright::convert {

class Volumes {
 public:
  Volumes(const Source& source, Draft& draft) : source_(source), draft_(draft) {}

  // VOLUME:relative/path of a directory or file in the pod, given by this flag.
  std::string trainer_path(const std::string& path, const std::string& flag);
  // VOLUME:relative/path of a path in the pod; empty: it is on no volume.
  std::string path_on_volume(const std::string& path) const;
  // Puts a volume of the pod into the list. Returns false if the pod has none of that name.
  bool use(const std::string& name);
  bool uses(const std::string& name) const;
  // nullptr: the pod has none of that name. `path`: of the field.
  const nlohmann::json* find_in_pod(const std::string& name, std::string& path) const;

  const nlohmann::ordered_json& list() const { return list_; }

 private:
  std::string resolve(const std::string& path) const;
  Result<std::string> expand_user(const std::string& path) const;

  const Source& source_;
  Draft& draft_;
  nlohmann::ordered_json list_ = nlohmann::ordered_json::array();
};

}  // namespace tilewright::convert
