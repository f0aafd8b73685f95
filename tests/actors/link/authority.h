// A certificate authority for tests: files of its own in the test's folder.
#pragma once

#include <string>

#include "actors/link/transport.h"

namespace troupe::actors::link {

class Authority {
 public:
  explicit Authority(const std::string& name);
  ~Authority();
  Authority(const Authority&) = delete;

  // A certificate that it signs. `days` < 0: one that has expired.
  Credentials issue(const std::string& name, int days = 2) const;
  const std::string& certificate() const { return ca_; }

 private:
  struct Pair;
  Pair* pair_;
  std::string folder_;
  std::string ca_;
};

}  // namespace troupe::actors::link
