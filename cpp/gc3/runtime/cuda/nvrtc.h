// NVRTC, CUDA's compiler as a library, loaded when a kernel is first needed.
#pragma once

#include <string>
#include <vector>

#include "gc3/base/result.h"
#include "gc3/model/types.h"

namespace gc3::cuda {

// A file of the kernel's source, by the name that others include it with.
struct SourceFile {
  const char* name;
  const char* text;
};
// What the kernels are made of; the build embeds it.
const std::vector<SourceFile>& kernel_sources();

class Nvrtc {
 public:
  // The first of `libraries` that there is.
  explicit Nvrtc(std::vector<std::string> libraries) : libraries_(std::move(libraries)) {}

  // The kernels of a protocol and a type as a cubin for compute capability `major`.`minor`.
  Result<std::string> compile(model::Protocol protocol, model::DataType type, int major, int minor);

 private:
  struct Table;
  static Result<Table> open(const std::vector<std::string>& libraries);

  std::vector<std::string> libraries_;
};

}  // namespace gc3::cuda
