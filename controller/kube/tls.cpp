// PEM into OpenSSL.
#include "controller/kube/tls.h"

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "common/base/files.h"

namespace tilewright::kube {
namespace {

namespace fs = std::filesystem;

template <auto kFree>
struct Freed {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Bio = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using Certificate = std::unique_ptr<X509, Freed<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;

constexpr std::uint64_t kMaxPemBytes = 1 << 20;

Error wrong(std::string message) { return {ExitCode::kUsage, std::move(message)}; }

Result<std::string> read_pem(const PemSource& source) {
  if (source.file.empty()) return source.text;
  return read_file(source.file, kMaxPemBytes, ExitCode::kUsage);
}

std::string name_of(const PemSource& source, const char* what) {
  return source.file.empty() ? fmt::format("the given {}", what) : source.file;
}

// Every certificate of the text.
std::vector<Certificate> certificates_of(const std::string& text) {
  std::vector<Certificate> all;
  const Bio bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
  while (X509* one = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) all.emplace_back(one);
  ERR_clear_error();
  return all;
}

Status trust(SSL_CTX* context, const PemSource& source) {
  const auto text = read_pem(source);
  if (!text) return text.error();
  const auto all = certificates_of(*text);
  if (all.empty()) {
    return wrong(name_of(source, "certificate authority") + ": found no certificate in PEM");
  }
  X509_STORE* store = X509_STORE_new();
  SSL_CTX_set_cert_store(context, store);  // owns it, and drops the system's
  // Any certificate that is named is trusted, an intermediate one too.
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
  for (const Certificate& one : all) X509_STORE_add_cert(store, one.get());
  return {};
}

// Of a variable that OpenSSL reads, or what it takes where that is not set.
std::string set_or(const char* variable, const char* otherwise) {
  const char* set = std::getenv(variable);
  return set == nullptr ? otherwise : set;
}

// Whether any folder of a list has a certificate under the name by which OpenSSL would look for it:
// eight digits of a hash, and .0 for the first of that hash.
bool hold_hashed_certificate(std::string_view folders) {
  while (!folders.empty()) {
    const std::size_t end = std::min(folders.find(':'), folders.size());
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folders.substr(0, end), none)) {
      const std::string name = entry.path().filename();
      if (name.size() == 10 && name.ends_with(".0")) return true;
    }
    folders.remove_prefix(std::min(end + 1, folders.size()));
  }
  return false;
}

int no_passphrase(char*, int, int, void*) { return 0; }

Status show(SSL_CTX* context, const std::string& chain, const std::string& key_text,
            const std::string& chain_name, const std::string& key_name) {
  auto all = certificates_of(chain);
  if (all.empty()) return wrong(chain_name + ": found no certificate in PEM");
  const Bio bio(BIO_new_mem_buf(key_text.data(), static_cast<int>(key_text.size())));
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  ERR_clear_error();
  if (!key) return wrong(key_name + ": found no private key in PEM without a passphrase");
  SSL_CTX_use_certificate(context, all.front().get());
  for (std::size_t i = 1; i < all.size(); ++i) {
    SSL_CTX_add_extra_chain_cert(context, all[i].release());
  }
  if (SSL_CTX_use_PrivateKey(context, key.get()) == 1 && SSL_CTX_check_private_key(context) == 1) {
    return {};
  }
  ERR_clear_error();
  return wrong(
      fmt::format("{}: the key does not belong to the certificate of {}", key_name, chain_name));
}

int verify_and_log(X509_STORE_CTX* store, void* argument) {
  auto* log = static_cast<HandshakeLog*>(argument);
  const int good = X509_verify_cert(store);
  if (good == 1) {
    log->last_refusal.clear();
    return 1;
  }
  const int code = X509_STORE_CTX_get_error(store);
  // The chain may be right and the name wrong; that check is cpprestsdk's and sets no code.
  log->last_refusal = code == X509_V_OK ? "the certificate is for another name"
                                        : X509_verify_cert_error_string(code);
  return good;
}

}  // namespace

Status prepare_tls(SSL_CTX* context, const TlsSettings& settings,
                   const std::optional<ClientCertificate>& from_plugin) {
  SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
  if (settings.verify || !settings.authorities.empty()) {
    Status trusted =
        settings.authorities.empty()
            ? trust_system(context, system_authorities_file(),
                           set_or(X509_get_default_cert_dir_env(), X509_get_default_cert_dir()))
            : trust(context, settings.authorities);
    if (!trusted) return trusted;
  }
  if (from_plugin) {
    return show(context, from_plugin->certificate_pem, from_plugin->key_pem,
                "the plugin's clientCertificateData", "the plugin's clientKeyData");
  }
  if (settings.certificate.empty()) return {};
  const auto chain = read_pem(settings.certificate);
  if (!chain) return chain.error();
  const auto key = read_pem(settings.key);
  if (!key) return key.error();
  return show(context, *chain, *key, name_of(settings.certificate, "client certificate"),
              name_of(settings.key, "client key"));
}

Status trust_system(SSL_CTX* context, const std::string& file, const std::string& folders) {
  const bool loaded = SSL_CTX_load_verify_file(context, file.c_str()) == 1;
  SSL_CTX_load_verify_dir(context, folders.c_str());
  ERR_clear_error();
  if (loaded || hold_hashed_certificate(folders)) return {};
  return wrong(
      fmt::format("{}: found no certificate in PEM, nor one under its hash in {}, expected those "
                  "of the system's authorities, since the cluster names none of its own",
                  file, folders));
}

const std::string& system_authorities_file() {
  static const std::string file = set_or(kCertFileVariable, X509_get_default_cert_file());
  return file;
}

void spare_system_authorities() {
  system_authorities_file();
  setenv(kCertFileVariable, "/dev/null", 1);
}

void log_refusals(SSL_CTX* context, HandshakeLog* log) {
  SSL_CTX_set_cert_verify_callback(context, verify_and_log, log);
}

}  // namespace tilewright::kube
