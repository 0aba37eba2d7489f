#include "tests/support/certificates.h"

#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include <cstdio>
#include <stdexcept>

namespace tilewright::testing {
namespace {

// Longer than any test run, short enough that leaked certificates are useless.
constexpr long kLifeSeconds = 24L * 3600;
// Tolerates machines whose clocks are slightly behind.
constexpr long kBackdatedSeconds = 300;

struct Deleter {
  void operator()(EVP_PKEY* key) const { EVP_PKEY_free(key); }
  void operator()(X509* certificate) const { X509_free(certificate); }
  void operator()(X509_EXTENSION* extension) const { X509_EXTENSION_free(extension); }
  void operator()(BIGNUM* number) const { BN_free(number); }
  void operator()(std::FILE* file) const { std::fclose(file); }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter>;
using Certificate = std::unique_ptr<X509, Deleter>;

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(std::string("OpenSSL refuses: ") + what);
}

Key make_key() {
  Key key(EVP_EC_gen("P-256"));
  require(key != nullptr, "a key");
  return key;
}

template <typename Write>
void write_pem(const std::filesystem::path& path, const Write& write) {
  const std::unique_ptr<std::FILE, Deleter> file(std::fopen(path.c_str(), "wxe"));
  if (file == nullptr) throw std::runtime_error("cannot write " + path.string());
  require(write(file.get()) == 1 && std::fflush(file.get()) == 0, "a PEM file");
}

void write_key(const std::filesystem::path& path, EVP_PKEY* key) {
  write_pem(path, [key](std::FILE* file) {
    return PEM_write_PrivateKey(file, key, nullptr, nullptr, 0, nullptr, nullptr);
  });
}

void write_certificate(const std::filesystem::path& path, X509* certificate) {
  write_pem(path, [certificate](std::FILE* file) { return PEM_write_X509(file, certificate); });
}

void add_name(X509_NAME* name, const char* field, const std::string& text) {
  require(X509_NAME_add_entry_by_txt(name, field, MBSTRING_UTF8,
                                     reinterpret_cast<const unsigned char*>(text.data()),
                                     static_cast<int>(text.size()), -1, 0) == 1,
          "a name");
}

void add_extension(X509* certificate, int kind, const std::string& value) {
  const std::unique_ptr<X509_EXTENSION, Deleter> extension(
      X509V3_EXT_conf_nid(nullptr, nullptr, kind, value.c_str()));
  require(extension != nullptr && X509_add_ext(certificate, extension.get(), -1) == 1,
          "an extension");
}

// X.509 version 3, a random serial number, valid from now, with the public half of `key`.
Certificate make_certificate(EVP_PKEY* key) {
  Certificate certificate(X509_new());
  require(certificate != nullptr, "a certificate");
  const std::unique_ptr<BIGNUM, Deleter> number(BN_new());
  require(BN_rand(number.get(), 120, BN_RAND_TOP_ONE, BN_RAND_BOTTOM_ANY) == 1 &&
              BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate.get())) != nullptr,
          "a serial number");
  constexpr long kVersion3 = 2;
  require(X509_set_version(certificate.get(), kVersion3) == 1 &&
              X509_set_pubkey(certificate.get(), key) == 1,
          "a certificate");
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kBackdatedSeconds);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kLifeSeconds);
  return certificate;
}

void sign(X509* certificate, EVP_PKEY* key) {
  require(X509_sign(certificate, key, EVP_sha256()) > 0, "a signature");
}

}  // namespace

struct CertificateAuthority::Keys {
  Key key;
  Certificate certificate;
};

struct CertificateAuthority::Request {
  std::string name;
  std::vector<std::string> organizations;
  std::string alternative_names;
  std::string usage;
};

CertificateAuthority::CertificateAuthority(const std::filesystem::path& folder)
    : folder_(folder), certificate_(folder / "ca.crt"), keys_(std::make_unique<Keys>()) {
  keys_->key = make_key();
  keys_->certificate = make_certificate(keys_->key.get());
  X509* certificate = keys_->certificate.get();
  X509_NAME* name = X509_get_subject_name(certificate);
  add_name(name, "CN", "tilewright-test-ca");
  X509_set_issuer_name(certificate, name);
  add_extension(certificate, NID_basic_constraints, "critical,CA:TRUE");
  add_extension(certificate, NID_key_usage, "critical,keyCertSign,cRLSign");
  sign(certificate, keys_->key.get());
  write_certificate(certificate_, certificate);
}

CertificateAuthority::~CertificateAuthority() = default;

CertificatePaths CertificateAuthority::issue(const Request& request) {
  const Key key = make_key();
  const Certificate certificate = make_certificate(key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  for (const std::string& organization : request.organizations) add_name(name, "O", organization);
  add_name(name, "CN", request.name);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(keys_->certificate.get()));
  add_extension(certificate.get(), NID_key_usage, "critical,digitalSignature");
  add_extension(certificate.get(), NID_ext_key_usage, request.usage);
  if (!request.alternative_names.empty()) {
    add_extension(certificate.get(), NID_subject_alt_name, request.alternative_names);
  }
  sign(certificate.get(), keys_->key.get());
  CertificatePaths paths{folder_ / (request.name + ".crt"), folder_ / (request.name + ".key")};
  write_certificate(paths.certificate, certificate.get());
  write_key(paths.key, key.get());
  return paths;
}

CertificatePaths CertificateAuthority::issue_server(const std::string& name,
                                                    const std::vector<std::string>& names) {
  std::string joined;
  for (const std::string& each : names) joined += (joined.empty() ? "" : ",") + each;
  return issue({name, {}, joined, "serverAuth"});
}

CertificatePaths CertificateAuthority::issue_client(const std::string& name,
                                                    const std::vector<std::string>& groups) {
  return issue({name, groups, "", "clientAuth"});
}

void write_signing_keys(const std::filesystem::path& private_key,
                        const std::filesystem::path& public_key) {
  const Key key = make_key();
  write_key(private_key, key.get());
  write_pem(public_key, [&key](std::FILE* file) { return PEM_write_PUBKEY(file, key.get()); });
}

}  // namespace tilewright::testing
