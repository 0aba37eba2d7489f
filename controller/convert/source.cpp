#include "controller/convert/source.h"

#include "common/json/members.h"
#include "common/json/positions.h"

namespace tilewright::convert {

MainReplica::MainReplica(const api::PyTorchJob& job)
    : type(job.spec.worker ? api::kWorkerType : api::kMasterType),
      spec(job.spec.worker ? *job.spec.worker : *job.spec.master),
      path(member_path(kReplicaSpecs, type)) {}

const nlohmann::json& Source::pod() const { return member(main.spec.pod_template, "spec"); }

std::string Source::pod_path(std::string_view field) const {
  return member_path(main.path + ".template.spec", field);
}

}  // namespace tilewright::convert
