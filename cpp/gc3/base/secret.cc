#include "gc3/base/secret.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "gc3/base/errors/processes.h"
#include "gc3/base/trusted_file.h"

namespace gc3 {
namespace {

constexpr std::size_t kLeast = 16;  // bytes; a shorter one can be guessed
constexpr std::size_t kMost = 4096;

Diagnostic unusable(std::string text) { return Diagnostic(ErrorCode::BadSecret, std::move(text)); }

Status check_size(const std::string& secret, const std::string& name) {
  if (secret.size() >= kLeast && secret.size() <= kMost) return {};
  return unusable(name + " has " + (secret.size() > kMost ? "more than " : "") +
                  std::to_string(std::min(secret.size(), kMost)) + " bytes; " + std::to_string(kLeast) + " to " +
                  std::to_string(kMost) + " are a secret");
}

Result<std::string> read_file(const std::string& path) {
  const std::string name = "GC3_SECRET_FILE='" + path + "'";
  TrustedText found = read_trusted(path, kMost + 2, S_IRWXG | S_IRWXO);  // a newline, and one more
  if (!found.problem.empty()) return unusable(name + found.problem);
  if (found.text.ends_with('\n')) found.text.pop_back();
  GC3_CHECK(check_size(found.text, name));
  return std::move(found.text);
}

}  // namespace

Result<std::string> read_secret(const Environment& environment) {
  GC3_ASSIGN(const Knobs knobs, read_knobs(environment));
  for (const std::string name : {"GC3_SECRET", "GC3_SECRET_FILE"}) {
    const char* const value = environment(name.c_str());
    if (value != nullptr && *value == '\0') {
      return unusable(name + " is set and empty; unset it for a job without a secret");
    }
  }
  if (!knobs.secret.empty() && !knobs.secret_file.empty()) {
    return unusable("GC3_SECRET and GC3_SECRET_FILE are both set");
  }
  if (!knobs.secret_file.empty()) return read_file(knobs.secret_file);
  if (!knobs.secret.empty()) GC3_CHECK(check_size(knobs.secret, "GC3_SECRET"));
  return knobs.secret;
}

}  // namespace gc3
