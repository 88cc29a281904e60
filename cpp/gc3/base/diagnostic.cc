#include "gc3/base/diagnostic.h"

#include <algorithm>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/compiler.h"
#include "gc3/base/errors/devices.h"
#include "gc3/base/errors/files.h"
#include "gc3/base/errors/language.h"
#include "gc3/base/errors/model.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/errors/runtime.h"
#include "gc3/base/errors/simulator.h"
#include "gc3/base/errors/verifier.h"

namespace gc3 {

#define GC3_ERROR(name, code, kind, title, hint) static_assert(ErrorCode::name == error_id(code));
#include "gc3/base/errors.def"
#undef GC3_ERROR

const std::vector<ErrorInfo>& all_errors() {
  static const std::vector<ErrorInfo> table = {
#define GC3_ERROR(name, code, kind, title, hint) {ErrorCode::name, #name, code, ErrorKind::kind, title, hint},
#include "gc3/base/errors.def"
#undef GC3_ERROR
  };
  return table;
}

const ErrorInfo& error_info(ErrorId code) {
  const std::vector<ErrorInfo>& all = all_errors();
  const auto found = std::ranges::find(all, code, &ErrorInfo::id);
  return found != all.end() ? *found : error_info(ErrorCode::Internal);
}

std::string Diagnostic::str() const {
  const ErrorInfo& about = info();
  std::string out;
  if (where.known()) out += where.str() + ": ";
  out += std::string(about.code) + " " + std::string(about.title);
  if (!message.empty()) out += ": " + message;
  for (const Note& n : notes) {
    out += "\n  note: " + n.text;
    if (n.where.known()) out += " (" + n.where.str() + ")";
  }
  if (!about.hint.empty()) out += "\n  hint: " + std::string(about.hint);
  return out;
}

}  // namespace gc3
