// How a row is sampled, as kernels take it. RowLogprobs and biases have one layout in messages and kernels (sample_rows.cc holds
// them to it), so that these are passed as they lie.
#pragma once

#include "kernels/kernels.h"
#include "messages/plan.h"

namespace troupe::device {

kernels::SampleRow to_kernels(const RowSample& sample);

}  // namespace troupe::device
