// How many threads can really run at once.
#pragma once
#include <filesystem>

namespace isobit {

// Processors this process may use: affinity, control group quota, one per physical core; at least 1. `root` is
// where the files of the system are looked for.
int usable_cores(const std::filesystem::path& root = "/");

// Cores that the quotas of this process's control groups allow, rounded down, at least 1; INT_MAX without a quota.
int quota_cores(const std::filesystem::path& root);

}  // namespace isobit
