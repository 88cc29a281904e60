#include "gc3/model/terms.h"

namespace gc3::model {

Terms counted(const std::vector<InputChunk>& inputs) {
  Terms terms;
  for (const InputChunk& input : inputs) ++terms[input];
  return terms;
}

std::string terms_text(std::uint32_t terms) {
  return std::to_string(terms) + (terms == 1 ? " term" : " terms") + (terms == kManyTerms ? " or more" : "");
}

std::string times_text(std::uint64_t times) {
  if (times == 1) return "";
  return (times == kManyTimes ? "2^62 or more" : std::to_string(times)) + " x ";
}

Terms difference(const Terms& all, const Terms& some) {
  Terms left;
  for (const auto& [input, times] : all) {
    const auto found = some.find(input);
    const std::uint64_t taken = found == some.end() ? 0 : found->second;
    if (times > taken) left[input] = times == kManyTimes ? times : times - taken;
  }
  return left;
}

}  // namespace gc3::model
