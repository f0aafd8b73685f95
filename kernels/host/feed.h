// Block table changes, and where a step's ids come from (Kernels::apply_changes, feed_resolve). Called by the thread
// that owns the stream, in stream order.
#pragma once

#include "kernels/kernels.h"

namespace troupe::kernels {

void apply_changes(const BlockTables& tables, const TableChange* changes, std::uint32_t n);
void feed_resolve(const FeedArgs& args);

}  // namespace troupe::kernels
