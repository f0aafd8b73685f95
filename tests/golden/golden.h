// Reads the reference data of this folder (README.md): cases from JSON, tensors from safetensors. For tests only:
// it trusts the files, and throws what is wrong with them.
#pragma once

#include <boost/json.hpp>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace troupe::golden {

inline std::string read_file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error("cannot open " + path);
  std::ostringstream s;
  s << in.rdbuf();
  return s.str();
}

struct Tensor {
  std::vector<std::size_t> shape;
  std::vector<float> values;
  const float* row(std::size_t i) const { return values.data() + i * shape.back(); }
};

// F32 tensors of a safetensors file: u64 header size, JSON header, data.
inline std::map<std::string, Tensor> read_safetensors(const std::string& path) {
  const std::string bytes = read_file(path);
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  const auto json = boost::json::parse(bytes.substr(8, header));
  std::map<std::string, Tensor> out;
  for (const auto& [name, v] : json.as_object()) {
    if (name == "__metadata__") continue;
    if (v.at("dtype").as_string() != "F32") throw std::runtime_error(path + ": only F32 is read");
    Tensor t;
    std::size_t n = 1;
    for (const auto& d : v.at("shape").as_array()) n *= t.shape.emplace_back(d.to_number<std::size_t>());
    t.values.resize(n);
    std::memcpy(t.values.data(), bytes.data() + 8 + header + v.at("data_offsets").at(0).to_number<std::size_t>(), n * 4);
    out.emplace(name, std::move(t));
  }
  return out;
}

struct Case {
  std::vector<std::uint32_t> prompt;
  std::vector<std::size_t> logit_positions;  // empty for smollm2: the last one alone
  double logit_std = 0.0;
  std::vector<std::uint32_t> greedy;
  std::vector<double> margin;
};

inline std::vector<Case> read_cases(const std::string& path) {
  std::vector<Case> out;
  const auto json = boost::json::parse(read_file(path));
  const auto numbers = [](const boost::json::value& v, auto& to) {
    for (const auto& x : v.as_array()) to.push_back(x.to_number<typename std::decay_t<decltype(to)>::value_type>());
  };
  for (const auto& v : json.at("cases").as_array()) {
    Case c;
    numbers(v.at("prompt"), c.prompt);
    if (v.as_object().contains("logit_positions")) numbers(v.at("logit_positions"), c.logit_positions);
    c.logit_std = v.at("logit_std").to_number<double>();
    numbers(v.at("greedy"), c.greedy);
    numbers(v.at("margin"), c.margin);
    out.push_back(std::move(c));
  }
  return out;
}

// Sums for `deviation`: the root mean square of (ours - reference) over the standard deviation of the reference, each
// row less its own mean.
class Deviation {
 public:
  void add(const float* ours, const float* reference, std::size_t n) {
    double a = 0.0, b = 0.0;
    for (std::size_t i = 0; i < n; ++i) a += ours[i], b += reference[i];
    a /= static_cast<double>(n), b /= static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) {
      const double x = ours[i] - a, y = reference[i] - b;
      error_ += (x - y) * (x - y);
      spread_ += y * y;
    }
  }
  double value() const { return std::sqrt(error_ / spread_); }

 private:
  double error_ = 0.0, spread_ = 0.0;
};

}  // namespace troupe::golden
