#include "worker/train/agreement.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "common/base/sha256.h"
#include "worker/collectives/exchange.h"
#include "worker/train/collective_limits.h"

namespace tilewright::train {
namespace {

constexpr std::size_t kMaxReportBytes = 512;

std::string encode(const elastic::StateReport& report) {
  return nlohmann::json{{"settings", report.settings},     {"step", report.position.step},
                        {"stage", report.position.stage},  {"checkpoint", report.checkpoint_step},
                        {"evaluation", report.evaluation}, {"epoch", report.position.epoch}}
      .dump();
}

elastic::StateReport decode_report(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    elastic::StateReport report;
    json.at("settings").get_to(report.settings);
    json.at("step").get_to(report.position.step);
    json.at("stage").get_to(report.position.stage);
    json.at("checkpoint").get_to(report.checkpoint_step);
    json.at("evaluation").get_to(report.evaluation);
    json.at("epoch").get_to(report.position.epoch);
    return report;
  } catch (const nlohmann::json::exception& error) {
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("a worker sent an invalid report of its state: {}", error.what()));
  }
}

// Throws a Failure that names the first setting in which a rank differs from rank 0.
[[noreturn]] void refuse_inconsistent(const Job& job, collectives::Mesh& mesh, ExitCode code) {
  nlohmann::json settings = job.fingerprint;
  settings.update(job.evaluation_fingerprint);
  const std::string own = settings.dump();
  const auto all = collectives::all_gather(mesh, own, kMaxCollectiveBytes, collective_deadline());
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    const auto expected = nlohmann::json::parse(all[0], nullptr, false);
    const auto other = nlohmann::json::parse(all[rank], nullptr, false);
    for (const auto& [name, value] : expected.items()) {
      if (!other.contains(name) || other[name] != value) {
        throw Failure(
            code, fmt::format("rank {} has {} = {}, rank 0 has {}: all workers of a job need the "
                              "same flags, model and data",
                              rank, name, other.contains(name) ? other[name].dump() : "nothing",
                              value.dump()));
      }
    }
    throw Failure(code, fmt::format("rank {} has different settings from rank 0", rank));
  }
  throw Failure(code, "the workers have different settings");
}

}  // namespace

elastic::StateAgreement agree_on_state(collectives::Mesh& mesh, const Job& job,
                                       elastic::StateReport own, std::int64_t resume_step) {
  own.settings = sha256_hex(job.fingerprint.dump());
  own.evaluation = sha256_hex(job.evaluation_fingerprint.dump());
  std::vector<elastic::StateReport> reports;
  for (const std::string& text :
       collectives::all_gather(mesh, encode(own), kMaxReportBytes, collective_deadline())) {
    reports.push_back(decode_report(text));
  }
  elastic::StateAgreement agreement = elastic::agree_on_state(reports, resume_step);
  const std::vector<int>& wrong = agreement.inconsistent;
  if (wrong.empty()) return agreement;
  // Only a new worker exits; the survivors continue without it.
  const bool survives =
      own.position.complete() && std::ranges::find(wrong, mesh.rank()) == wrong.end();
  refuse_inconsistent(job, mesh, survives ? ExitCode::kPeerLost : ExitCode::kUsage);
}

std::string run_on_rank0(collectives::Mesh& mesh, const std::function<std::string()>& call) {
  nlohmann::json outcome;
  if (mesh.rank() == 0) {
    try {
      outcome["result"] = call();
    } catch (const Failure& failure) {
      outcome = {{"code", static_cast<int>(failure.code())}, {"error", failure.what()}};
    }
  }
  const std::string text = collectives::broadcast_string(
      mesh, 0, outcome.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace),
      kMaxCollectiveBytes, collective_deadline());
  try {
    outcome = nlohmann::json::parse(text);
    if (!outcome.contains("error")) return outcome.at("result");
    throw Failure(static_cast<ExitCode>(outcome.at("code").get<int>()), outcome.at("error"));
  } catch (const nlohmann::json::exception& error) {
    throw Failure(ExitCode::kPeerLost,
                  fmt::format("rank 0 sent an invalid result: {}", error.what()));
  }
}

}  // namespace tilewright::train
