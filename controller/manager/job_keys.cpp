#include "controller/manager/job_keys.h"

#include <fmt/format.h>

#include <array>

#include "common/base/text.h"
#include "common/contract/ports.h"
#include "controller/kube/base64.h"

namespace tilewright::manager {
namespace {

using kube::ApiError;
using kube::ApiResult;
using kube::Problem;
using nlohmann::json;

constexpr const char* kMasterKeyName = "master-key";
constexpr const char* kSalt = "tilewright job key";

ApiResult<JobKeys> keys_of(const json& secret, const std::string& where) {
  const json text =
      secret.value(json::json_pointer(fmt::format("/data/{}", kMasterKeyName)), json());
  const auto bytes = text.is_string() ? kube::decode_base64(text.get<std::string>()) : std::nullopt;
  if (bytes) {
    Result<net::SecretKey> key = net::SecretKey::from_bytes(*bytes);
    if (key) return JobKeys(std::move(key).value());
  }
  ApiError error;
  error.problem = Problem::kProtocol;
  error.operation = "read secrets " + where;
  error.message = fmt::format(
      "its data has no {} of at least {} bytes; delete it, and it is made "
      "anew (running jobs then start over from their checkpoints)",
      kMasterKeyName, net::SecretKey::kMinBytes);
  return error;
}

}  // namespace

ApiResult<JobKeys> JobKeys::load(kube::Client& client, const kube::WriteGuard& guard,
                                 const std::string& namespace_name, const std::string& name,
                                 const net::Wait& wait) {
  const std::string where = namespace_name + "/" + name;
  const auto secrets = kube::resource::secrets();
  ApiResult<json> found = client.get(secrets, namespace_name, name, wait);
  if (found.is(Problem::kNotFound)) {
    const json secret = {
        {"apiVersion", "v1"},
        {"kind", "Secret"},
        {"type", "Opaque"},
        {"immutable", true},
        {"metadata", {{"name", name}, {"namespace", namespace_name}}},
        {"stringData", {{kMasterKeyName, to_hex(net::SecretKey::random().bytes())}}}};
    found = client.create(guard, secrets, namespace_name, secret, wait);
    // Another replica was faster, or an attempt of this call was.
    if (found.is(Problem::kAlreadyExists)) found = client.get(secrets, namespace_name, name, wait);
  }
  if (!found) return found.error();
  return keys_of(*found, where);
}

std::string JobKeys::text_for(const std::string& job_uid) const {
  std::array<unsigned char, kJobKeyBytes> bytes{};
  net::hkdf_sha256(master_, kSalt, job_uid, bytes);
  return to_hex(bytes);
}

std::string JobKeys::id_for(const std::string& job_uid) const {
  std::array<unsigned char, 4> bytes{};
  net::hkdf_sha256(master_, kSalt, "id " + job_uid, bytes);
  return to_hex(bytes);
}

net::SecretKey JobKeys::key_for(const std::string& job_uid) const {
  return net::SecretKey::from_bytes(text_for(job_uid)).or_throw();
}

}  // namespace tilewright::manager
