#include "tests/simt/simt.h"

namespace troupe::simt {

void launch_on(void* stream, Dim3 grid, Dim3 block, std::function<void()> body) {
  static_cast<Machine*>(stream)->launch(grid, block, body);
}

}  // namespace troupe::simt
