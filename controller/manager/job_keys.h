// The secrets of jobs, all derived from one of the operator's own: so it needs the right to make
// Secrets, but none to read those of users.
#pragma once

#include <string>

#include "common/net/secret.h"
#include "controller/kube/client.h"

namespace tilewright::manager {

class JobKeys {
 public:
  // Reads the operator's secret, or makes it where there is none. `name` stands in the operator's
  // own namespace, where it may get and create this one Secret.
  static kube::ApiResult<JobKeys> load(kube::Client& client, const kube::WriteGuard& guard,
                                       const std::string& namespace_name, const std::string& name,
                                       const net::Wait& wait);
  explicit JobKeys(net::SecretKey master) : master_(std::move(master)) {}

  // HKDF-SHA256 (RFC 5869) of the master secret with the job's UID: 32 bytes in hexadecimal, as the
  // job's Secret holds them.
  std::string text_for(const std::string& job_uid) const;
  // Tells this key from those of another master secret and says nothing of it: eight hexadecimal
  // digits, by HKDF too.
  std::string id_for(const std::string& job_uid) const;
  // What the workers read from there, as it is.
  net::SecretKey key_for(const std::string& job_uid) const;

 private:
  net::SecretKey master_;
};

}  // namespace tilewright::manager
