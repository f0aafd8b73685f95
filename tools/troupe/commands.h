// The subcommands; each has a file of its own, and returns an ExitStatus.
#pragma once

#include "tools/troupe/options.h"

namespace troupe::tools {

int run_generate(const Command& self, const std::vector<std::string>& args);
int run_requests(const Command& self, const std::vector<std::string>& args);
int run_lora(const Command& self, const std::vector<std::string>& args);
int run_status(const Command& self, const std::vector<std::string>& args);
int run_top(const Command& self, const std::vector<std::string>& args);
int run_drain(const Command& self, const std::vector<std::string>& args);
int run_undrain(const Command& self, const std::vector<std::string>& args);
int run_serve(const Command& self, const std::vector<std::string>& args);
int run_node(const Command& self, const std::vector<std::string>& args);
int run_info(const Command& self, const std::vector<std::string>& args);
int run_tokenize(const Command& self, const std::vector<std::string>& args);
int run_logits(const Command& self, const std::vector<std::string>& args);
int run_trace(const Command& self, const std::vector<std::string>& args);
int run_verify(const Command& self, const std::vector<std::string>& args);

}  // namespace troupe::tools
