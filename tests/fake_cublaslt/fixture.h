// Tests' way to the fake library: its path, and its own functions.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/fake_cublaslt/fake_cublaslt.h"

namespace troupe::test {

inline const std::string kFakeCublasLt = "tests/fake_cublaslt/libfake_cublaslt.so";

// Keeps the library loaded, so that its state is one however often it is opened.
class FakeCublasLt {
 public:
  FakeCublasLt() : library_(::dlopen(kFakeCublasLt.c_str(), RTLD_NOW | RTLD_LOCAL)) {
    if (library_ == nullptr) {
      ADD_FAILURE() << ::dlerror();
      return;
    }
    get(use, "fake_cublaslt_use");
    get(fail, "fake_cublaslt_fail");
    get(report, "fake_cublaslt_report");
    get(alive, "fake_cublaslt_alive");
    get(products, "fake_cublaslt_products");
    use(nullptr);
    fail(0, 0);
    first_ = products();
  }
  FakeCublasLt(const FakeCublasLt&) = delete;
  FakeCublasLt& operator=(const FakeCublasLt&) = delete;
  ~FakeCublasLt() {
    if (library_ == nullptr) return;
    const char* const wrong = report();
    EXPECT_EQ(wrong, nullptr) << wrong;
    EXPECT_EQ(alive(), 0u) << "what was made is not given back";
    ::dlclose(library_);
  }

  // Products since this was made.
  std::uint64_t made() const { return products() - first_; }

  decltype(&fake_cublaslt_use) use = nullptr;
  decltype(&fake_cublaslt_fail) fail = nullptr;
  decltype(&fake_cublaslt_report) report = nullptr;
  decltype(&fake_cublaslt_alive) alive = nullptr;
  decltype(&fake_cublaslt_products) products = nullptr;

 private:
  template <class F>
  void get(F& function, const char* name) {
    function = reinterpret_cast<F>(::dlsym(library_, name));
    ASSERT_NE(function, nullptr) << name;
  }
  void* library_;
  std::uint64_t first_ = 0;
};

}  // namespace troupe::test
