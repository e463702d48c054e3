// What the processor can do, and which kernels that allows.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "isobit/kernels.h"

namespace isobit {

std::map<std::string, bool> cpu_features();
// Kernel tables that run on this processor, the best one last.
std::vector<const Kernels*> available_kernels();
// Null for an unknown name or one that this processor cannot run. `specimen` is a kernel whose order depends on
// the shape of its input: the fault that certify exists to find.
const Kernels* find_kernels(const std::string& name);

}  // namespace isobit
