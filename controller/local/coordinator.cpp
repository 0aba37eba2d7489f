#include "controller/local/coordinator.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "common/base/files.h"
#include "common/net/address.h"
#include "common/rendezvous/server.h"
#include "controller/reconcile/observe_rendezvous.h"

namespace tilewright::local {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxEpochBytes = 1024;

// "UID NUMBER": the file of one job's last epoch. Another job's, or none: 0.
Result<rendezvous::Epoch> read_epoch(const CoordinatorOptions& options) {
  const fs::path& file = options.epoch_file;
  if (file.empty() || !fs::exists(file)) return rendezvous::Epoch{0};
  const Result<std::string> text = read_file(file, kMaxEpochBytes, ExitCode::kManifest);
  if (!text) return text.error();
  const std::string_view words = *text;
  const std::size_t space = words.find(' ');
  rendezvous::Epoch epoch = 0;
  const char* end = words.data() + words.size();
  const auto parsed = std::from_chars(words.data() + std::min(space + 1, words.size()), end, epoch);
  if (space == std::string_view::npos || parsed.ec != std::errc() || epoch > rendezvous::kMaxEpoch)
    return Error{ExitCode::kManifest,
                 fmt::format("{} is damaged: expected the job's UID and the number of its last "
                             "epoch; remove it",
                             file.string())};
  return words.substr(0, space) == options.job_uid ? epoch : 0;
}

class Served final : public Coordinator {
 public:
  Served(CoordinatorOptions options, net::SecretKey key, rendezvous::Epoch latest,
         std::unique_ptr<rendezvous::Server> server, std::shared_ptr<Logger> log)
      : options_(std::move(options)),
        key_(std::move(key)),
        server_(std::move(server)),
        log_(std::move(log)),
        latest_(latest) {}

  std::string endpoint() const override { return net::to_string(server_->address()); }

  Status expect(const reconcile::Membership& membership) override {
    if (!open_) {
      rendezvous::JobSpec spec{options_.job_uid, key_.clone(), {}, latest_, options_.tls};
      spec.settings.min_world = membership.min_world;
      spec.settings.max_world = membership.max_world;
      spec.settings.expected = membership.expected;
      if (Status added = server_->add_job(std::move(spec)); !added) return added;
      open_ = true;
    }
    if (told_ != membership) {
      server_->expect(options_.job_uid, membership.expected, membership.patience);
      told_ = membership;
    }
    return {};
  }

  void close() override {
    if (!open_) return;
    remember();
    open_ = false;
    server_->remove_job(options_.job_uid, "the job is not running any more");
    told_.reset();
  }

  std::optional<reconcile::RendezvousView> progress() const override {
    const auto snapshot = open_ ? server_->snapshot(options_.job_uid) : std::nullopt;
    if (!snapshot) return std::nullopt;
    // Between two epochs, and after the last one's end, what was known before still holds.
    return reconcile::view_of(*snapshot, last_, options_.global_batch);
  }

  int changes_fd() const override { return server_->changes().fd(); }
  void take_changes() override {
    server_->take_changed();
    if (open_) remember();
  }

 private:
  // What outlives the job's being open.
  void remember() {
    const auto snapshot = server_->snapshot(options_.job_uid);
    if (snapshot->progress) last_ = snapshot->progress;
    if (snapshot->latest <= latest_) return;
    latest_ = snapshot->latest;
    if (options_.epoch_file.empty()) return;
    const Status kept = write_file_atomically(options_.epoch_file,
                                              fmt::format("{} {}\n", options_.job_uid, latest_));
    if (!kept) log_->warn("the last epoch is not kept: {}", kept.error().message);
  }

  const CoordinatorOptions options_;
  net::SecretKey key_;
  std::unique_ptr<rendezvous::Server> server_;
  const std::shared_ptr<Logger> log_;
  bool open_ = false;
  std::optional<reconcile::Membership> told_;
  rendezvous::Epoch latest_;  // the highest epoch so far
  std::optional<rendezvous::Progress> last_;
};

}  // namespace

Result<std::unique_ptr<Coordinator>> serve_rendezvous(CoordinatorOptions options,
                                                      net::SecretKey key,
                                                      std::shared_ptr<Logger> log) {
  const Result<rendezvous::Epoch> latest = read_epoch(options);
  if (!latest) return latest.error();
  auto server = rendezvous::Server::start({}, log);
  if (!server) return server.error();
  return std::unique_ptr<Coordinator>(std::make_unique<Served>(
      std::move(options), std::move(key), *latest, std::move(server).value(), std::move(log)));
}

}  // namespace tilewright::local
