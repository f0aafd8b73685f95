#include "tools/bench/report.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

namespace troupe::tools {

void Report::section(std::string title) {
  section_ = std::move(title);
  fmt::print("\n{}\n", section_);
  std::fflush(stdout);
}

void Report::add(const std::string& name, double value, const std::string& unit) {
  fmt::print("  {:<56} {:>12.2f} {}\n", name, value, unit);
  std::fflush(stdout);
  figures_.push_back({section_, name, unit, value});
}

Result<void> Report::write_json(const std::string& path) const {
  boost::json::array figures;
  for (const Figure& f : figures_) figures.push_back({{"section", f.section}, {"name", f.name}, {"value", f.value}, {"unit", f.unit}});
  std::ofstream out(path);
  out << boost::json::serialize(boost::json::object{{"figures", std::move(figures)}}) << '\n';
  out.close();
  if (!out) return Error{ErrorCode::io_failed, fmt::format("{}: cannot write: {}", path, std::strerror(errno))};
  return success();
}

}  // namespace troupe::tools
