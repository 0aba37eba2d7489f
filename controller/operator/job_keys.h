// The keys of the jobs, derived from one master key. The operator therefore needs permission to
// create Secrets, but none to read the Secrets of users.
#pragma once

#include <string>

#include "common/net/secret.h"
#include "controller/client/client.h"

namespace tilewright::controller {

class JobKeys {
 public:
  // Reads the master key Secret, or creates it if it does not exist. `namespace_name` is the
  // operator's namespace, where it has permission to get this Secret and to create Secrets.
  static kube::ApiResult<JobKeys> load(kube::Client& client, const kube::WriteGuard& guard,
                                       const std::string& namespace_name, const std::string& name,
                                       const net::Wait& wait);
  explicit JobKeys(net::SecretKey master) : master_(std::move(master)) {}

  // HKDF-SHA256 (RFC 5869) of the master key and the job's UID: 32 bytes in hexadecimal, the
  // content of the job's Secret.
  std::string hex_key_for(const std::string& job_uid) const;
  // Identifies the key without revealing it: eight hexadecimal digits, derived with HKDF. Differs
  // between master keys.
  std::string id_for(const std::string& job_uid) const;
  // The key as the workers read it from their Secret.
  net::SecretKey key_for(const std::string& job_uid) const;

 private:
  net::SecretKey master_;
};

}  // namespace tilewright::controller
