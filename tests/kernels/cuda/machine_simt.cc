#include "tests/kernels/cuda/machine.h"
#include "tests/simt/simt.h"

namespace troupe::kernels {

struct Machine::State {
  explicit State(std::uint64_t seed) : machine(seed) {}
  simt::Machine machine;
};

Machine::Machine(std::uint64_t seed) : state_(std::make_unique<State>(seed)) {}
Machine::~Machine() = default;

CudaStream Machine::native() { return &state_->machine; }
void Machine::wait() {}
std::optional<std::uint64_t> Machine::launches() const { return state_->machine.launches(); }

}  // namespace troupe::kernels
