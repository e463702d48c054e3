// Runs every kernel over fixed inputs and prints a hash of each result, so that instruction sets, compilers and
// machines are compared by comparing text.
//   digest            all instruction sets of this processor
//   digest ISA ...    the named ones; `specimen` is the one that is wrong on purpose
//   digest --list     their names
// Exit code 1: a result depended on how a call was split. 2: an instruction set that is not available.
#include "digest.h"

#include <string>
#include <vector>

#include "cpu.h"

namespace {

bool run(const isobit::Kernels& kernels) {
  isobit::tests::Report report(kernels);
  isobit::tests::array_cases(report);
  isobit::tests::attention_cases(report);
  isobit::tests::linear_cases(report);
  return !report.failed;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  std::vector<const isobit::Kernels*> chosen;
  if (arguments == std::vector<std::string>{"--list"}) {
    for (const auto* kernels : isobit::available_kernels()) std::printf("%s\n", kernels->name);
    return 0;
  }
  for (const auto& name : arguments) {
    chosen.push_back(isobit::find_kernels(name));
    if (chosen.back() == nullptr) {
      std::fprintf(stderr, "%s: not an instruction set of this processor; see --list\n", name.c_str());
      return 2;
    }
  }
  if (arguments.empty()) chosen = isobit::available_kernels();
  bool good = true;
  for (const auto* kernels : chosen) good &= run(*kernels);
  return good ? 0 : 1;
}
