// A folder of a test's own that goes with it.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

namespace troupe::test {

class Folder {
 public:
  Folder() {
    const char* base = std::getenv("TEST_TMPDIR");
    std::string name = (base != nullptr ? std::string(base) : std::filesystem::temp_directory_path().string()) + "/spill_XXXXXX";
    if (mkdtemp(name.data()) != nullptr) path_ = name;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }
  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // What lies in it.
  std::size_t count() const {
    std::size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path_)) n += entry.exists() ? 1 : 0;
    return n;
  }

 private:
  std::string path_;
};

}  // namespace troupe::test
