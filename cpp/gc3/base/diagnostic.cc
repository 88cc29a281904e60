#include "gc3/base/diagnostic.h"

#include <cstddef>

namespace gc3 {

const std::vector<ErrorInfo>& all_errors() {
  static const std::vector<ErrorInfo> table = {
#define GC3_ERROR(name, code, kind, title, hint) {ErrorCode::name, #name, code, ErrorKind::kind, title, hint},
#include "gc3/base/errors.def"
#undef GC3_ERROR
  };
  return table;
}

const ErrorInfo& error_info(ErrorCode code) { return all_errors()[static_cast<std::size_t>(code)]; }

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
