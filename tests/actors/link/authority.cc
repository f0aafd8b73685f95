#include "tests/actors/link/authority.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>
#include <unistd.h>

#include <cstdio>
#include <memory>

namespace troupe::actors::link {
namespace {

using File = std::unique_ptr<FILE, int (*)(FILE*)>;
File open_file(const std::string& path) { return {std::fopen(path.c_str(), "wb"), &std::fclose}; }

X509* certificate(const std::string& name, EVP_PKEY* key, X509* issuer, EVP_PKEY* signer, int days, long serial) {
  X509* x = X509_new();
  X509_set_version(x, 2);
  ASN1_INTEGER_set(X509_get_serialNumber(x), serial);
  X509_gmtime_adj(X509_getm_notBefore(x), -10 * 86400L);
  X509_gmtime_adj(X509_getm_notAfter(x), days * 86400L);
  X509_set_pubkey(x, key);
  X509_NAME* subject = X509_get_subject_name(x);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(x, issuer == nullptr ? subject : X509_get_subject_name(issuer));
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer == nullptr ? x : issuer, x, nullptr, nullptr, 0);
  X509_EXTENSION* basic =
      X509V3_EXT_conf_nid(nullptr, &context, NID_basic_constraints, issuer == nullptr ? "critical,CA:TRUE" : "CA:FALSE");
  X509_add_ext(x, basic, -1);
  X509_EXTENSION_free(basic);
  X509_sign(x, signer, EVP_sha256());
  return x;
}

void write_certificate(const std::string& path, X509* x) {
  const File f = open_file(path);
  ASSERT_EQ(PEM_write_X509(f.get(), x), 1);
}

}  // namespace

struct Authority::Pair {
  EVP_PKEY* key;
  X509* certificate;
};

Authority::Authority(const std::string& name)
    : pair_(new Pair), folder_(::testing::TempDir() + "/" + name + "." + std::to_string(::getpid())) {
  pair_->key = EVP_EC_gen("P-256");
  pair_->certificate = link::certificate(name, pair_->key, nullptr, pair_->key, 30, 1);
  ca_ = folder_ + ".ca.pem";
  write_certificate(ca_, pair_->certificate);
}

Authority::~Authority() {
  X509_free(pair_->certificate);
  EVP_PKEY_free(pair_->key);
  delete pair_;
}

Credentials Authority::issue(const std::string& name, int days) const {
  static long serial = 2;
  Credentials out{folder_ + "." + name + ".pem", folder_ + "." + name + ".key", ca_};
  EVP_PKEY* key = EVP_EC_gen("P-256");
  X509* x = link::certificate(name, key, pair_->certificate, pair_->key, days, serial++);
  write_certificate(out.certificate, x);
  {
    const File f = open_file(out.key);
    EXPECT_EQ(PEM_write_PrivateKey(f.get(), key, nullptr, nullptr, 0, nullptr, nullptr), 1);
  }
  X509_free(x);
  EVP_PKEY_free(key);
  return out;
}

}  // namespace troupe::actors::link
