#include "controller/operator/job_keys.h"

#include <fmt/format.h>

#include <array>

#include "common/base/base64.h"
#include "common/base/strings.h"
#include "common/contract/pod_paths.h"

namespace tilewright::controller {
namespace {

using kube::ApiError;
using kube::ApiResult;
using kube::ErrorKind;
using nlohmann::json;

constexpr const char* kMasterKeyName = "master-key";
constexpr const char* kSalt = "tilewright job key";

ApiResult<JobKeys> keys_of(const json& secret, const std::string& where) {
  const json text =
      secret.value(json::json_pointer(fmt::format("/data/{}", kMasterKeyName)), json());
  const auto bytes = text.is_string() ? decode_base64(text.get<std::string>()) : std::nullopt;
  if (bytes) {
    Result<net::SecretKey> key = net::SecretKey::from_bytes(*bytes);
    if (key) return JobKeys(std::move(key).value());
  }
  ApiError error;
  error.kind = ErrorKind::kProtocol;
  error.operation = "read secrets " + where;
  error.message = fmt::format(
      "its data has no {} of at least {} bytes; delete the Secret to create a new one "
      "(running jobs then restart from their checkpoints)",
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
  if (found.is(ErrorKind::kNotFound)) {
    const json secret = {
        {"apiVersion", "v1"},
        {"kind", "Secret"},
        {"type", "Opaque"},
        {"immutable", true},
        {"metadata", {{"name", name}, {"namespace", namespace_name}}},
        {"stringData", {{kMasterKeyName, to_hex(net::SecretKey::random().bytes())}}}};
    found = client.create(guard, secrets, namespace_name, secret, wait);
    // Another replica, or an earlier attempt of this call, created it.
    if (found.is(ErrorKind::kAlreadyExists))
      found = client.get(secrets, namespace_name, name, wait);
  }
  if (!found) return found.error();
  return keys_of(*found, where);
}

std::string JobKeys::hex_key_for(const std::string& job_uid) const {
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
  return net::SecretKey::from_bytes(hex_key_for(job_uid)).or_throw();
}

}  // namespace tilewright::controller
