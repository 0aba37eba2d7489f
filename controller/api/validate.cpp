#include "controller/api/validate.h"

#include "common/base/printable.h"
#include "common/contract/labels.h"
#include "controller/api/bounds_checker.h"
#include "controller/api/defaults.h"
#include "controller/api/documents.h"
#include "controller/api/names.h"
#include "controller/api/trainjob_fields.h"
#include "controller/api/validate_internal.h"

namespace tilewright::api {
namespace {

constexpr std::size_t kMaxPodNameLength = 63;  // the pod name is also its host name
constexpr std::size_t kGeneratedSuffixLength = 5;

// Why `written`, followed by `suffix_length` generated letters, cannot be the name of a job with up
// to `most` workers.
std::optional<std::string> name_error(std::string_view written, std::size_t suffix_length,
                                      std::int64_t most) {
  const std::string index = std::to_string(most > 1 ? most - 1 : 0);
  const std::size_t longest =
      kMaxPodNameLength - suffix_length - index.size() - std::string_view(kWorkerInfix).size();
  if (written.size() > longest) {
    return fmt::format(
        "found {} characters, expected at most {}: the pod name {}{}{} has at most {}",
        written.size(), longest, "NAME", kWorkerInfix, index, kMaxPodNameLength);
  }
  if (is_dns1035_label(std::string(written) + std::string(suffix_length, 'x'))) return std::nullopt;
  return fmt::format(
      "found {}, expected lower-case letters, digits and '-', starting with a letter "
      "and not ending with '-'",
      describe_value(written));
}

class LimitDropper : public FieldVisitor {
 public:
  void operator()(const Field& field, std::optional<std::int64_t>& limit) {
    if (limit && !field.bounds.contains(*limit)) limit.reset();
  }
  template <typename T>
  void operator()(const Field& /*field*/, T& /*member*/) {}
};

}  // namespace

void drop_invalid_limits(RunPolicy& policy) {
  LimitDropper dropper;
  visit_fields(dropper, policy);
}

void validate_bounds(const TrainJob& job, FindingCollector& collector) {
  BoundsChecker checker("spec", collector);
  visit_fields(checker, job.spec);
}

std::string describe_value(std::string_view text) {
  return text.empty() ? "nothing" : excerpt(text);
}

void validate_metadata(const ObjectMeta& metadata, std::int64_t max_workers,
                       FindingCollector& collector) {
  const bool generated = metadata.name.empty();
  const std::string path = generated ? "metadata.generateName" : "metadata.name";
  const std::string& given = generated ? metadata.generate_name : metadata.name;
  if (given.empty()) {
    collector.error("metadata.name", "found nothing, expected a name or a generateName");
  } else if (const auto wrong =
                 name_error(given, generated ? kGeneratedSuffixLength : 0, max_workers)) {
    collector.error(path, *wrong);
  }
  if (!metadata.namespace_name.empty() && !is_dns1123_label(metadata.namespace_name)) {
    collector.error("metadata.namespace",
                    fmt::format("found {}, expected up to 63 lower-case letters, digits and '-'",
                                describe_value(metadata.namespace_name)));
  }
  for (const auto& [key, value] : metadata.labels) {
    const std::string label = member_path("metadata.labels", key);
    if (!is_label_key(key)) {
      collector.error(label, "found an invalid key, expected one such as team or example.org/team");
    }
    if (!is_label_value(value)) {
      collector.error(label,
                      fmt::format("found {}, expected up to 63 letters, digits, '-', '_' and '.'",
                                  describe_value(value)));
    }
  }
}

Status check_job_name(std::string_view name, const TrainJob& job) {
  const std::int64_t most = job.spec.elastic_policy.max_replicas.value_or(1);
  if (const auto wrong = name_error(name, 0, most)) return Error{ExitCode::kUsage, *wrong};
  return {};
}

Findings validate(const TrainJob& job, const Positions& positions) {
  FindingCollector collector(positions);
  validate_bounds(job, collector);
  validate_metadata(job.metadata, job.spec.elastic_policy.max_replicas.value_or(1), collector);
  validate_replicas(job, collector);
  validate_run_policy(job, collector);
  validate_trainer(job, collector);
  validate_worker(job, collector);
  validate_volumes(job, collector);
  validate_pod_template(job, collector);
  validate_pod_conflicts(job, collector);
  return collector.take();
}

namespace {

// The only TrainJob among the objects of a file. `ignored` gets what the others are.
Result<Document> take_trainjob(std::vector<Document> objects, std::string_view file,
                               std::vector<FieldError>& ignored) {
  std::vector<FieldError> misspelt;
  for (const Document& object : objects) {
    if (auto wrong = kind_error(object, false)) add_error(misspelt, *std::move(wrong));
  }
  if (!misspelt.empty()) return Error{ExitCode::kManifest, sentences(misspelt, file)};
  std::erase_if(objects, [&](const Document& object) {
    const std::string kind = string_member(object.tree, "kind");
    if (kind == kTrainJobKind) return false;
    ignored.push_back({"", object.positions.line_of("kind"),
                       fmt::format("ignored: the kind is {}", describe_value(kind))});
    return true;
  });
  if (objects.empty()) {
    return Error{ExitCode::kManifest,
                 fmt::format("{}: found no {}, expected one", file, kTrainJobKind)};
  }
  if (objects.size() > 1) {
    const FieldError second{"", objects[1].positions.line_of("kind"),
                            fmt::format("found a second {}, expected one", kTrainJobKind)};
    return Error{ExitCode::kManifest, second.sentence(file)};
  }
  return std::move(objects.front());
}

}  // namespace

Result<ValidatedJob> check_manifest(std::string_view yaml, std::string_view file, Target target) {
  std::vector<Document> objects = read_objects(yaml);
  if (objects.size() == 1) return check_document(std::move(objects.front()), file, target);
  std::vector<FieldError> ignored;
  Result<Document> job = take_trainjob(std::move(objects), file, ignored);
  if (!job.ok()) return job.error();
  Result<ValidatedJob> checked = check_document(*std::move(job), file, target);
  if (checked.ok()) {
    checked->warnings.insert(checked->warnings.begin(), ignored.begin(), ignored.end());
  }
  return checked;
}

Result<ValidatedJob> check_document(Document document, std::string_view file, Target target) {
  DecodeResult decoded = decode_document(std::move(document));
  if (!decoded.ok()) return Error{ExitCode::kManifest, sentences(decoded.errors, file)};
  apply_defaults(decoded.job);
  Findings findings = validate(decoded.job, decoded.positions);
  if (target == Target::kLocal) {
    findings.append(validate_for_local(decoded.job, decoded.positions));
  }
  if (target == Target::kCluster) {
    findings.append(validate_for_cluster(decoded.job, decoded.positions));
  }
  if (!findings.ok()) return Error{ExitCode::kManifest, sentences(findings.errors, file)};
  return ValidatedJob{std::move(decoded.job), std::move(findings.warnings),
                      std::move(decoded.positions)};
}

}  // namespace tilewright::api
