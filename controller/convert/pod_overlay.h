// The rest of the pod: fields that spec.worker has too, and spec.worker.podTemplate.
#pragma once

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "controller/convert/draft.h"
#include "controller/convert/source.h"
#include "controller/convert/volumes.h"

namespace tilewright::convert {

class PodOverlay {
 public:
  // `volumes`: with all that flags and variables use.
  PodOverlay(const Source& source, Draft& draft, const Volumes& volumes)
      : source_(source), draft_(draft), volumes_(volumes) {}

  void convert() {
    convert_mounts();
    convert_pod();
  }

 private:
  void convert_mounts();
  void convert_shared_memory(const std::string& volume_name, const std::string& mount_path);
  void convert_pod();
  void convert_worker_fields();
  void convert_pod_fields(const std::set<std::string>& unknown);
  void note_restart_policy();
  void convert_container_fields(const std::set<std::string>& unknown);
  void note_ports(const nlohmann::json& ports, const std::string& path);
  void add_worker_container();
  void write_pod_template();
  std::set<std::string> note_unknown_fields();
  void convert_security();
  void convert_other_containers();
  void add_pod_volume(const std::string& name);

  const Source& source_;
  Draft& draft_;
  const Volumes& volumes_;
  nlohmann::ordered_json overlay_;         // spec of the podTemplate
  nlohmann::ordered_json overlay_worker_;  // its container of the worker
};

}  // namespace tilewright::convert
