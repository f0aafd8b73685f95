// The figures of a benchmark run: a table for people, JSON for machines. One thread.
#pragma once

#include <string>
#include <vector>

#include "messages/error.h"

namespace troupe::tools {

class Report {
 public:
  void section(std::string title);  // prints it
  // Prints the line "name  value unit" as soon as it is there.
  void add(const std::string& name, double value, const std::string& unit);
  Result<void> write_json(const std::string& path) const;

 private:
  struct Figure {
    std::string section, name, unit;
    double value;
  };
  std::string section_;
  std::vector<Figure> figures_;
};

}  // namespace troupe::tools
