#include "worker/checkpoint/writer.h"

#include "common/base/random.h"
#include "common/contract/output_owner.h"

namespace tilewright::checkpoint {
namespace {

constexpr int kIdBytes = 8;
constexpr std::int64_t kMaxEpoch = std::int64_t{1} << 53;  // exact in every JSON reader

}  // namespace

std::string new_writer_id() { return random_hex(kIdBytes); }

nlohmann::json to_json(const Writer& writer) {
  return {{kOwnerUidField, writer.job_uid}, {"epoch", writer.epoch}, {"writer", writer.id}};
}

Writer writer_from(const JsonFields& fields) {
  return {fields.string(kOwnerUidField),
          static_cast<std::uint64_t>(fields.integer("epoch", 0, kMaxEpoch, 0)),
          fields.string("writer", "")};
}

}  // namespace tilewright::checkpoint
