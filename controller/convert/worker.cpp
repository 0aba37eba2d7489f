#include "controller/convert/worker.h"

#include <fmt/format.h>

#include <set>

#include "common/base/printable.h"
#include "common/base/version.h"
#include "common/contract/pod_paths.h"
#include "common/json/members.h"
#include "common/json/positions.h"
#include "controller/api/names.h"
#include "controller/convert/native.h"

namespace tilewright::convert {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

void convert_image(const Source& source, Draft& draft) {
  const std::string path = source.container.path() + ".image";
  const std::string image = string_member(source.container.json(), "image");
  static const std::string kOwn = fmt::format("{}:{}", kWorkerProgram, kVersion);
  if (has_worker_image(source.container.json())) {
    draft.worker()["image"] = image;
  } else {
    draft.worker()["image"] = kOwn;
    draft.note(path, "spec.worker.image",
               fmt::format("image {}: Tilewright's trainer has its own image", excerpt(image)));
  }
  draft.made_of("spec.worker.image", path);
  const std::string pull_policy = string_member(source.container.json(), "imagePullPolicy");
  if (!pull_policy.empty()) draft.worker()["imagePullPolicy"] = pull_policy;
}

void convert_resources(const Source& source, Draft& draft) {
  const json& resources = member(source.container.json(), "resources");
  const json& limits = member(resources, "limits");
  const json& requests = member(resources, "requests");
  const std::string path = source.container.path() + ".resources";
  ordered_json target = ordered_json::object();
  std::set<std::string> names;
  for (const json* amounts : {&limits, &requests}) {
    for (const auto& amount : amounts->items()) names.insert(amount.key());
  }
  const auto text = [](const json& amount) {
    return amount.is_string() ? amount.get<std::string>() : amount.dump();
  };
  for (const std::string& name : names) {
    const json& limit = member(limits, name.c_str());
    const json& request = member(requests, name.c_str());
    const json& amount = limit.is_null() ? request : limit;
    const std::string from = member_path(path + (limit.is_null() ? ".requests" : ".limits"), name);
    if (api::is_gpu_resource(name)) {
      draft.note(from, "spec.worker.resources",
                 fmt::format("{} {}: Tilewright computes on CPUs only", name, text(amount)));
      continue;
    }
    target[name] = amount.is_number_integer() ? ordered_json(amount) : ordered_json(text(amount));
    draft.made_of(member_path("spec.worker.resources", name), from);
    if (!request.is_null() && (limit.is_null() || text(limit) != text(request))) {
      draft.note(member_path(path + ".requests", name), member_path("spec.worker.resources", name),
                 fmt::format("requests {} {}: {}", name, text(request),
                             limit.is_null() ? "also the limit of a worker"
                                             : "a worker requests its limit"),
                 true);
    }
  }
  for (const char* name : {"cpu", "memory"}) {
    if (target.contains(name)) continue;
    draft.note(path, member_path("spec.worker.resources", name),
               fmt::format("{}: the pod has no limit, but a worker needs one; set it", name), true);
  }
  if (!target.empty()) draft.worker()["resources"] = std::move(target);
}

}  // namespace

void convert_worker(const Source& source, Draft& draft) {
  const std::int64_t masters = source.job.spec.master ? 1 : 0;
  const std::int64_t workers = source.job.spec.worker ? *source.job.spec.worker->replicas : 0;
  draft.worker()["replicas"] = masters + workers;
  draft.made_of("spec.worker.replicas", source.main.path + ".replicas");
  convert_image(source, draft);
  if (source.written.spec.worker ? source.written.spec.worker->restart_policy
                                 : source.written.spec.master->restart_policy) {
    draft.worker()["restartPolicy"] = std::string(api::to_string(*source.main.spec.restart_policy));
  }
  convert_resources(source, draft);
}

}  // namespace tilewright::convert
