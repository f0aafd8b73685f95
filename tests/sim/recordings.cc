#include "tests/sim/recordings.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace troupe::sim {

std::string leave_recording(const std::vector<std::uint8_t>& bytes, const std::string& name) {
  std::error_code none;
  const char* outputs = std::getenv("TEST_UNDECLARED_OUTPUTS_DIR");
  const std::filesystem::path folder = outputs != nullptr ? std::filesystem::path(outputs) : std::filesystem::temp_directory_path(none);
  const std::filesystem::path path = folder / (name + ".trace");
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  file.close();
  return file ? path.string() : std::string();
}

std::string look_at(const std::vector<std::uint8_t>& bytes, const std::string& name) {
  return "; look at it: troupe trace check " + leave_recording(bytes, name);
}

std::string look_at(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b, const std::string& name) {
  return "; look at them: troupe trace diff " + leave_recording(a, name + "-a") + " " + leave_recording(b, name + "-b");
}

}  // namespace troupe::sim
