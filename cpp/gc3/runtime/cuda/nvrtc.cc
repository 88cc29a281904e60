#include "gc3/runtime/cuda/nvrtc.h"

#include <dlfcn.h>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/devices.h"

namespace gc3::cuda {

using Program = void*;

struct Nvrtc::Table {
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  const char* (*error)(int) = nullptr;
  int (*version)(int*, int*) = nullptr;
};

namespace {

// NVRTC has no headers of its own.
constexpr const char* kStdint = R"(#pragma once
using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
)";
constexpr const char* kKernels = "gc3/runtime/cuda/device/kernel.cu";
constexpr std::size_t kMostOfLog = 4000;  // characters shown of a failed compilation

template <class Function>
bool find(void* handle, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(handle, symbol));
  return function != nullptr;
}

}  // namespace

Result<Nvrtc::Table> Nvrtc::open() const {
  std::string tried;
  for (const std::string& name : libraries_) {
    tried += (tried.empty() ? "" : ", ") + name;
    void* const handle = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) continue;
    Table table;
    int major = 0;
    int minor = 0;
    if (find(handle, "nvrtcVersion", table.version) && table.version(&major, &minor) == 0 && major > newest_) {
      tried += " (of CUDA " + std::to_string(major) + ", the driver is of " + std::to_string(newest_) + ")";
      continue;
    }
    // NVRTC opens this library by its bare name when it compiles. Outside of the system's folders it is found only if
    // it is already loaded.
    const std::size_t folder = name.rfind('/');
    if (folder != std::string::npos) {
      const std::string builtins =
          name.substr(0, folder) + "/libnvrtc-builtins.so." + std::to_string(major) + "." + std::to_string(minor);
      dlopen(builtins.c_str(), RTLD_NOW | RTLD_LOCAL);
    }
    if (find(handle, "nvrtcCreateProgram", table.create) && find(handle, "nvrtcCompileProgram", table.compile) &&
        find(handle, "nvrtcGetCUBINSize", table.cubin_size) && find(handle, "nvrtcGetCUBIN", table.cubin) &&
        find(handle, "nvrtcGetProgramLogSize", table.log_size) && find(handle, "nvrtcGetProgramLog", table.log) &&
        find(handle, "nvrtcDestroyProgram", table.destroy) && find(handle, "nvrtcGetErrorString", table.error)) {
      return table;
    }
  }
  return Diagnostic(ErrorCode::NoKernelCompiler, "tried " + tried);
}

Result<std::string> Nvrtc::compile(std::optional<model::Protocol> protocol, model::DataType type, int major,
                                   int minor) {
  GC3_ASSIGN(const Table table, open());
  std::vector<const char*> texts = {kStdint};
  std::vector<const char*> names = {"stdint.h"};
  for (const SourceFile& file : kernel_sources()) {
    texts.push_back(file.text);
    names.push_back(file.name);
  }
  for (const auto& [name, text] : others_.files) {
    texts.push_back(text.c_str());
    names.push_back(name.c_str());
  }
  const std::string main =
      "#include \"" + (others_.files.empty() ? std::string(kKernels) : others_.files.front().first) + "\"\n";
  Program program = nullptr;
  const int made =
      table.create(&program, main.c_str(), "kernels.cu", static_cast<int>(texts.size()), texts.data(), names.data());
  if (made != 0) return Diagnostic(ErrorCode::Internal, std::string("NVRTC: ") + table.error(made));
  std::vector<std::string> options = {"--std=c++20",
                                      "--gpu-architecture=sm_" + std::to_string(major) + std::to_string(minor),
                                      "-DGC3_PROTOCOL=" + std::string(protocol ? model::name_of(*protocol) : kOneSided),
                                      "-DGC3_TYPE=" + std::string(model::name_of(type))};
  options.insert(options.end(), others_.options.begin(), others_.options.end());
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const int compiled = table.compile(program, static_cast<int>(arguments.size()), arguments.data());
  std::size_t size = 0;
  std::string result;
  if (compiled == 0) {
    table.cubin_size(program, &size);
    result.resize(size);
    table.cubin(program, result.data());
  } else {
    table.log_size(program, &size);
    result.resize(size);
    table.log(program, result.data());
  }
  table.destroy(&program);
  if (compiled == 0) return result;
  return Diagnostic(ErrorCode::CudaFailed, "NVRTC cannot compile the kernel for compute capability " +
                                               std::to_string(major) + "." + std::to_string(minor) + ": " +
                                               table.error(compiled) + "\n" + result.substr(0, kMostOfLog));
}

}  // namespace gc3::cuda
