#include "gc3/runtime/core/call_record.h"

#include <array>
#include <cstdio>

namespace gc3::core {

CallRecord CallRecord::unpack(std::uint64_t packed, std::uint64_t count, std::uint64_t program) {
  CallRecord record;
  record.kind = static_cast<CallKind>(packed & 0xffU);
  record.collective = static_cast<model::CollectiveKind>(packed >> 8U & 0xffU);
  record.type = static_cast<model::DataType>(packed >> 16U & 0xffU);
  record.op = static_cast<model::ReduceOp>(packed >> 24U & 0x7fU);
  record.in_place = (packed >> 31U & 1U) != 0;
  record.root = static_cast<std::uint32_t>(packed >> 32U);
  record.count = count;
  record.program = program;
  return record;
}

std::string CallRecord::describe() const {
  using Collective = model::CollectiveKind;
  switch (kind) {
    case CallKind::barrier:
      return "barrier";
    case CallKind::split:
      return "split";
    case CallKind::learn:
      return "exchange of the times of calls";
    case CallKind::named:
      return root == 0 ? "description of the group" : "elements of a type that GC3 does not have";
    case CallKind::refused:
      return "a call with wrong arguments";
    case CallKind::load:
    case CallKind::collective:
    case CallKind::counts:
    case CallKind::v_form:
    case CallKind::many:
      break;
  }
  std::string text = kind == CallKind::load     ? "load of a program for "
                     : kind == CallKind::counts ? "exchange of the counts of "
                                                : "";
  text += model::name_of(collective);
  std::array<char, 24> hash{};
  if (kind != CallKind::load && kind != CallKind::counts) {
    text += " of " +
            (kind == CallKind::v_form ? "blocks of"
             : kind == CallKind::many ? "many arrays of"
                                      : std::to_string(count)) +
            " " + std::string(model::name_of(type));
    const bool reduces = collective == Collective::allreduce || collective == Collective::reducescatter ||
                         collective == Collective::reduce || collective == Collective::custom;
    if (reduces) text += " (" + std::string(model::name_of(op)) + ")";
  }
  const bool rooted = collective == Collective::broadcast || collective == Collective::reduce ||
                      collective == Collective::gather || collective == Collective::scatter;
  if (rooted) text += ", root " + std::to_string(root);
  if (kind == CallKind::counts) return text;
  if (kind == CallKind::v_form || kind == CallKind::many) {
    std::snprintf(hash.data(), hash.size(), "%08x", static_cast<unsigned>(count >> 32U));
    text += ", counts " + std::string(hash.data());
  }
  std::snprintf(hash.data(), hash.size(), "%08x", static_cast<unsigned>(program >> 32U));
  return text + (in_place ? ", in place" : ", out of place") + ", program " + hash.data();
}

}  // namespace gc3::core
