#include "traincore/testing/machine.h"

#include <fmt/core.h>
#include <hwy/highway.h>
#include <omp.h>
#include <unistd.h>

#include <fstream>
#include <map>

namespace tc::testing {
namespace {

constexpr int64_t kUnknownCache = int64_t{32} << 20;

std::string cpu_model() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);)
    if (const auto colon = line.find(": "); line.starts_with("model name") && colon != line.npos)
      return line.substr(colon + 2);
  return "unknown";
}

// Linux says which processors share which cache; the last level is the sum of its distinct pieces.
int64_t cache_bytes(int processors) {
  std::map<std::string, int64_t> pieces;
  for (int cpu = 0; cpu < processors; ++cpu)
    for (const int index : {3, 2}) {
      const std::string folder = fmt::format("/sys/devices/system/cpu/cpu{}/cache/index{}/", cpu, index);
      std::ifstream size(folder + "size"), shared(folder + "shared_cpu_list");
      int64_t kilobytes = 0;
      std::string by;
      if (!(size >> kilobytes && shared >> by)) continue;
      pieces[by] = kilobytes << 10;
      break;
    }
  int64_t total = 0;
  for (const auto& [by, bytes] : pieces) total += bytes;
  return total > 0 ? total : kUnknownCache;
}

// Highway's names, but for the two that its users rarely meet.
std::string target_name(int64_t target) {
  if (target == HWY_AVX3) return "AVX-512";
  if (target == HWY_EMU128 || target == HWY_SCALAR) return "portable";
  return hwy::TargetName(target);
}

Machine look() {
  Machine m;
  m.cpu = cpu_model();
  m.processors = omp_get_num_procs();
  m.threads = omp_get_max_threads();
  m.memory_bytes = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  m.cache_bytes = cache_bytes(m.processors);
  // Highway numbers its targets best first.
  const int64_t here = hwy::SupportedTargets() & HWY_TARGETS;
  m.simd = target_name(here & -here);
  for (int64_t rest = HWY_TARGETS; rest; rest &= rest - 1) m.simd_compiled.push_back(target_name(rest & -rest));
  return m;
}

}  // namespace

const Machine& machine() {
  static const Machine seen = look();
  return seen;
}

int64_t free_memory_bytes() { return int64_t{sysconf(_SC_AVPHYS_PAGES)} * sysconf(_SC_PAGESIZE); }

}  // namespace tc::testing
