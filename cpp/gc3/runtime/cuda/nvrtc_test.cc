#include "gc3/runtime/cuda/nvrtc.h"

#include <doctest/doctest.h>

#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "gc3/base/knobs.h"

namespace gc3::cuda {
namespace {

TEST_CASE("the source that the build has embedded includes nothing else") {
  std::string names = " stdint.h ";  // NVRTC does not have it; nvrtc.cc defines it
  for (const SourceFile& file : kernel_sources()) names += std::string(file.name) + " ";
  for (const SourceFile& file : kernel_sources()) {
    const std::string text = file.text;
    const std::string include = "#include ";
    for (std::size_t at = text.find(include); at != std::string::npos; at = text.find(include, at + 1)) {
      const std::size_t begin = at + include.size() + 1;
      const std::string name = text.substr(begin, text.find_first_of("\">", begin) - begin);
      if (name == "string.h") continue;  // within #if, for a host
      CHECK_MESSAGE(names.find(" " + name + " ") != std::string::npos, file.name, " includes ", name);
    }
  }
}

// tools/cuda_check.py runs this test if it finds an NVRTC, and names the library in GC3_NVRTC.
TEST_CASE("NVRTC compiles the source" * doctest::skip(read_knobs().value().nvrtc.empty())) {
  Nvrtc compiler({read_knobs().value().nvrtc}, 13);
  for (const auto& [major, minor] : {std::pair{8, 0}, std::pair{9, 0}, std::pair{10, 0}}) {
    const auto check = [&, capability = std::pair(major, minor)](std::optional<model::Protocol> protocol) {
      const auto image = compiler.compile(protocol, model::DataType::bfloat16, capability.first, capability.second);
      REQUIRE_MESSAGE(image.ok(), image.error().str());
      CHECK(image.value().starts_with("\177ELF"));
      const std::string kind(protocol ? model::name_of(*protocol) : kOneSided);
      CHECK(image.value().find("gc3_run_" + kind + "_bfloat16") != std::string::npos);
    };
    for (const auto protocol : {model::Protocol::Simple, model::Protocol::LL, model::Protocol::LL128}) check(protocol);
    check({});
  }
}

// nvcc, which checks them too, allows more than NVRTC.
TEST_CASE("NVRTC compiles the benchmark's kernels" * doctest::skip(read_knobs().value().nvrtc.empty())) {
  OtherKernels by_hand;
  for (const char* name : {"benchmarks/cuda/hand.cu", "benchmarks/cuda/hand.h"}) {
    std::ifstream file(name);  // the check runs in the root of the repository
    by_hand.files.emplace_back(name, std::string(std::istreambuf_iterator<char>(file), {}));
  }
  for (const char* schedule : {"ring", "allpairs", "alltoall"}) {
    by_hand.options = {std::string("-DGC3_HAND=") + schedule};
    Nvrtc compiler({read_knobs().value().nvrtc}, 13, by_hand);
    const auto image = compiler.compile(model::Protocol::LL128, model::DataType::float32, 9, 0);
    CHECK_MESSAGE(image.ok(), image.error().str());
  }
}

}  // namespace
}  // namespace gc3::cuda
