#include "controller/client/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/base/files.h"
#include "common/contract/environment.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;

template <auto kFree>
struct OpensslDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, OpensslDeleter<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, OpensslDeleter<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, OpensslDeleter<EVP_PKEY_free>>;

constexpr std::uint64_t kMaxPemBytes = 1 << 20;

std::string name_of(const PemSource& source, const char* what) {
  return source.file.empty() ? fmt::format("the inline {}", what) : source.file;
}

// All certificates in `text`.
std::vector<Certificate> parse_certificates(const std::string& text) {
  std::vector<Certificate> all;
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) all.emplace_back(one);
  ERR_clear_error();
  return all;
}

Status trust_authorities(SSL_CTX* context, const PemSource& source) {
  const auto text = read_pem(source);
  if (!text) return text.error();
  const auto all = parse_certificates(*text);
  if (all.empty()) {
    return usage_error(name_of(source, "certificate authority") + ": found no PEM certificate");
  }
  X509_STORE* store = X509_STORE_new();
  SSL_CTX_set_cert_store(context, store);  // takes ownership, and drops the CAs of the system
  // Trust every listed certificate, including intermediate ones.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
  for (const Certificate& one : all) X509_STORE_add_cert(store, one.get());
  return {};
}

// The value of `variable`, or `otherwise` if it is not set.
std::string getenv_or(const char* variable, const char* otherwise) {
  const char* set = std::getenv(variable);
  return set == nullptr ? otherwise : set;
}

// True if one of `directories` contains a file with a name that OpenSSL searches for: eight hash
// digits and ".0".
bool has_hashed_certificate(std::string_view directories) {
  while (!directories.empty()) {
    const std::size_t end = std::min(directories.find(':'), directories.size());
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(directories.substr(0, end), none)) {
      const std::string name = entry.path().filename();
      if (name.size() == 10 && name.ends_with(".0")) return true;
    }
    directories.remove_prefix(std::min(end + 1, directories.size()));
  }
  return false;
}

int no_passphrase(char*, int, int, void*) { return 0; }

Status use_client_certificate(SSL_CTX* context, const std::string& chain,
                              const std::string& key_text, const std::string& chain_name,
                              const std::string& key_name) {
  auto all = parse_certificates(chain);
  if (all.empty()) return usage_error(chain_name + ": found no PEM certificate");
  const Bio bio(BIO_new_mem_buf(key_text.data(), static_cast<int>(key_text.size())));
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (!key) return usage_error(key_name + ": found no PEM private key without a passphrase");
  SSL_CTX_use_certificate(context, all.front().get());
  for (std::size_t i = 1; i < all.size(); ++i) {
    SSL_CTX_add_extra_chain_cert(context, all[i].release());
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1) {
    return {};
  }
  ERR_clear_error();
  return usage_error(
      fmt::format("{}: the key does not belong to the certificate of {}", key_name, chain_name));
}

int verify_and_record(X509_STORE_CTX* store, void* argument) {
  auto* log = static_cast<HandshakeLog*>(argument);
  const int good = X509_verify_cert(store);
  if (good == 1) {
    log->last_verify_error.clear();
    return 1;
  }
  const int code = X509_STORE_CTX_get_error(store);
  // The chain may be valid and the name wrong: cpprestsdk checks the name and sets no error code.
  log->last_verify_error = code == X509_V_OK ? "the certificate is for another name"
                                             : X509_verify_cert_error_string(code);
  return good;
}

}  // namespace

Result<std::string> read_pem(const PemSource& source) {
  if (source.file.empty()) return source.text;
  return read_file(source.file, kMaxPemBytes, ExitCode::kUsage);
}

Status prepare_tls(SSL_CTX* context, const TlsSettings& settings,
                   const std::optional<ClientCertificate>& from_plugin) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  if (settings.verify || !settings.authorities.empty()) {
    Status trusted = settings.authorities.empty()
                         ? trust_system_authorities(context, system_ca_file(),
                                                    getenv_or(X509_get_default_cert_dir_env(),
                                                              X509_get_default_cert_dir()))
                         : trust_authorities(context, settings.authorities);
    if (!trusted) return trusted;
  }
  if (from_plugin) {
    return use_client_certificate(context, from_plugin->certificate_pem, from_plugin->key_pem,
                                  "the plugin's clientCertificateData",
                                  "the plugin's clientKeyData");
  }
  if (settings.certificate.empty()) return {};
  const auto chain = read_pem(settings.certificate);
  if (!chain) return chain.error();
  const auto key = read_pem(settings.key);
  if (!key) return key.error();
  return use_client_certificate(context, *chain, *key,
                                name_of(settings.certificate, "client certificate"),
                                name_of(settings.key, "client key"));
}

Status trust_system_authorities(SSL_CTX* context, const std::string& file,
                                const std::string& directories) {
  const bool loaded = SSL_CTX_load_verify_file(context, file.c_str()) == 1;
  SSL_CTX_load_verify_dir(context, directories.c_str());
  ERR_clear_error();
  if (loaded || has_hashed_certificate(directories)) return {};
  return usage_error(
      fmt::format("{}: found no PEM certificate, nor a hashed one in {}; expected the CA "
                  "certificates of the system, because the cluster configuration names no CA",
                  file, directories));
}

const std::string& system_ca_file() {
  static const std::string file = getenv_or(env::kSslCertFile, X509_get_default_cert_file());
  return file;
}

void disable_default_ca_file() {
  system_ca_file();
  setenv(env::kSslCertFile, "/dev/null", 1);
}

void record_verify_errors(SSL_CTX* context, HandshakeLog* log) {
  SSL_CTX_set_cert_verify_callback(context, verify_and_record, log);
}

}  // namespace tilewright::kube
