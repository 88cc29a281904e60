// NVRTC, CUDA's compiler as a library, loaded when a kernel is first needed.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/types.h"

namespace gc3::cuda {

// A file of the kernel's source, by the name that others include it with.
struct SourceFile {
  const char* name;
  const char* text;
};
// The sources of the kernels, which the build embeds.
const std::vector<SourceFile>& kernel_sources();

// Other kernels instead of kernel.cu, with the same names: for benchmarks.
struct OtherKernels {
  std::vector<std::pair<std::string, std::string>> files;  // name and text; the first one is compiled
  std::vector<std::string> options;
};

// In the names of their kernels the place of a protocol.
inline constexpr std::string_view kOneSided = "OneSided";

class Nvrtc {
 public:
  // The first of `libraries` that exists and whose major version is not above `newest`: a driver of CUDA 12 does not
  // load the output of an NVRTC of CUDA 13.
  Nvrtc(std::vector<std::string> libraries, int newest, OtherKernels others = {})
      : libraries_(std::move(libraries)), newest_(newest), others_(std::move(others)) {}

  // The kernels of a protocol and a type as a cubin for compute capability `major`.`minor`. Without a protocol: those
  // of one-sided programs.
  Result<std::string> compile(std::optional<model::Protocol> protocol, model::DataType type, int major, int minor);

 private:
  struct Table;
  Result<Table> open() const;

  std::vector<std::string> libraries_;
  int newest_;
  OtherKernels others_;
};

}  // namespace gc3::cuda
