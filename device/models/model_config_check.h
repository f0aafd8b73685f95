// What the readers of a ModelConfig share. Private to model_config*.cc.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "device/models/model_config.h"

namespace troupe::device {

inline constexpr std::uint32_t kMostOfAnything = 1u << 24;  // keeps products of two inside 64 bits
inline constexpr std::uint32_t kMostHeadDim = 1u << 16;     // inv_freq is as long as half of it

std::string shape_text(const std::vector<std::uint64_t>& dims);  // "[64, 512]"

std::optional<Architecture> architecture_named(std::string_view name);

// What both formats can contradict themselves in; then fills inv_freq, where it is empty. `where` begins an error.
Result<void> finish_config(ModelConfig& config, const std::string& where);

}  // namespace troupe::device
