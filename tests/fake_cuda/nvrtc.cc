// The functions of NVRTC that GC3 uses. It "compiles" to the name of the kernel, which the fake driver contains.
#include <cstring>
#include <string>

#include "machine.h"

namespace {

struct Program {
  std::string source;
  int headers = 0;
  std::string image;
};

constexpr char kLog[] = "kernel.cu(1): error: said by the fake compiler";

std::string option(int count, const char* const* options, const std::string& prefix) {
  for (int i = 0; i < count; ++i) {
    if (std::string(options[i]).rfind(prefix, 0) == 0) return std::string(options[i]).substr(prefix.size());
  }
  return "";
}

}  // namespace

#define GC3_FAKE(type, symbol, ...) extern "C" __attribute__((visibility("default"))) type symbol(__VA_ARGS__)

GC3_FAKE(int, nvrtcVersion, int* major, int* minor) {
  *major = gc3::fake_cuda::Settings::get().compiler;
  *minor = 0;
  return 0;
}
GC3_FAKE(int, nvrtcCreateProgram, void** program, const char* source, const char*, int headers, const char* const*,
         const char* const*) {
  *program = new Program{source, headers, ""};
  return 0;
}
GC3_FAKE(int, nvrtcCompileProgram, void* handle, int count, const char* const* options) {
  auto& program = *static_cast<Program*>(handle);
  const bool whole = program.source.find("#include") != std::string::npos && program.headers > 10;
  if (!gc3::fake_cuda::Settings::get().compiles || !whole || option(count, options, "--gpu-architecture=") != "sm_90") {
    return 6;
  }
  program.image = "fake " + option(count, options, "-DGC3_PROTOCOL=") + " " + option(count, options, "-DGC3_TYPE=") +
                  " " + option(count, options, "-DGC3_HAND=");
  return 0;
}
GC3_FAKE(int, nvrtcGetCUBINSize, void* program, std::size_t* size) {
  *size = static_cast<Program*>(program)->image.size() + 1;
  return 0;
}
GC3_FAKE(int, nvrtcGetCUBIN, void* handle, char* to) {
  const std::string& image = static_cast<Program*>(handle)->image;
  std::memcpy(to, image.c_str(), image.size() + 1);
  return 0;
}
GC3_FAKE(int, nvrtcGetProgramLogSize, void*, std::size_t* size) {
  *size = sizeof kLog;
  return 0;
}
GC3_FAKE(int, nvrtcGetProgramLog, void*, char* to) {
  std::memcpy(to, kLog, sizeof kLog);
  return 0;
}
GC3_FAKE(int, nvrtcDestroyProgram, void** program) {
  delete static_cast<Program*>(*program);
  *program = nullptr;
  return 0;
}
GC3_FAKE(const char*, nvrtcGetErrorString, int) { return "NVRTC_ERROR_COMPILATION"; }
