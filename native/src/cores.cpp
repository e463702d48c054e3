#include "cores.h"

#include <sched.h>

#include <algorithm>
#include <climits>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <thread>

namespace isobit {

namespace {

namespace fs = std::filesystem;

// Cores of a quota in microseconds per period; INT_MAX where there is none.
int cores_of(double quota, double period) {
  if (!(quota > 0) || !(period > 0)) return INT_MAX;
  return static_cast<int>(std::clamp(quota / period, 1.0, static_cast<double>(INT_MAX)));
}

// Version 2: "max 100000" or "150000 100000".
int quota_v2(const fs::path& group) {
  std::ifstream file(group / "cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max") return INT_MAX;
  std::istringstream number(quota);
  double value = 0;
  return number >> value ? cores_of(value, period) : INT_MAX;
}

// Version 1: a quota of -1 is none.
int quota_v1(const fs::path& group) {
  std::ifstream quota_file(group / "cpu.cfs_quota_us"), period_file(group / "cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period)) return INT_MAX;
  return cores_of(quota, period);
}

// The tightest quota of a group and those around it. In a container the group's path may be that of the host, of
// which only the end of the walk, the mount itself, can be seen.
template <typename Quota>
int tightest(const fs::path& mount, const fs::path& group, Quota quota) {
  int cores = quota(mount);
  fs::path at = mount;
  for (const auto& part : group.relative_path()) {
    if (part == "..") break;
    at /= part;
    cores = std::min(cores, quota(at));
  }
  return cores;
}

bool lists_cpu(const std::string& controllers) {
  std::istringstream names(controllers);
  for (std::string name; std::getline(names, name, ',');) {
    if (name == "cpu") return true;
  }
  return false;
}

// The first sibling of a processor stands for its physical core.
std::string core_of(const fs::path& root, int cpu) {
  std::ifstream file(root / ("sys/devices/system/cpu/cpu" + std::to_string(cpu)) /
                     "topology/thread_siblings_list");
  std::string siblings;
  if (!(file >> siblings)) return std::to_string(cpu);
  return siblings;
}

}  // namespace

int quota_cores(const fs::path& root) {
  const fs::path mounts = root / "sys/fs/cgroup";
  std::ifstream file(root / "proc/self/cgroup");
  int cores = quota_v2(mounts);  // where /proc is hidden
  // Lines such as "0::/user.slice" (version 2) and "4:cpu,cpuacct:/docker/1f" (version 1).
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1),
                      group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const auto& mount : {mounts, mounts / "unified"})
        cores = std::min(cores, tightest(mount, group, quota_v2));
    } else if (lists_cpu(controllers)) {
      for (const auto& mount : {mounts / controllers, mounts / "cpu"})
        cores = std::min(cores, tightest(mount, group, quota_v1));
    }
  }
  return cores;
}

int usable_cores(const fs::path& root) {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) {
    return std::max(1u, std::thread::hardware_concurrency());
  }
  std::set<std::string> cores;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cores.insert(core_of(root, cpu));
  }
  return std::max(1, std::min(static_cast<int>(cores.size()), quota_cores(root)));
}

}  // namespace isobit
