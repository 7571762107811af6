// What Workload::FromJson does for workloads that are back to back.
#pragma once

#include "workload.h"

namespace convoy {

// Reads the fields of the operator alone; all others are read already. Throws InvalidWorkload where
// they do not fit those.
void ParseBackToBack(const json::Object& object, Workload* load);

// Fills `operands` and `num_outputs`.
void ListBackToBack(Workload* load);

}  // namespace convoy
