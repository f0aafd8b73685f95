// The contract of every driver (tests/device/driver_contract.h), on a GPU.
#include <utility>

#include "device/cuda/driver.h"
#include "tests/device/driver_contract.h"

namespace troupe::device {
namespace {

INSTANTIATE_TEST_SUITE_P(Gpu, DriverContract,
                         testing::Values(DriverKind{.name = "cuda",
                                                    .make =
                                                        [](const ContractLimits& l) {
                                                          return std::move(make_cuda_driver({.stream_capacity = l.stream_capacity,
                                                                                             .max_streams = l.max_streams,
                                                                                             .max_events = l.max_events})
                                                                               .value());
                                                        },
                                                    .graphs = true}));

}  // namespace
}  // namespace troupe::device
