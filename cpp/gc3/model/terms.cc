#include "gc3/model/terms.h"

namespace gc3::model {

Terms counted(const std::vector<InputChunk>& inputs) {
  Terms terms;
  for (const InputChunk& input : inputs) ++terms[input];
  return terms;
}

Terms difference(const Terms& all, const Terms& some) {
  Terms left;
  for (const auto& [input, times] : all) {
    const auto found = some.find(input);
    const std::uint64_t taken = found == some.end() ? 0 : found->second;
    if (times > taken) left[input] = times - taken;
  }
  return left;
}

}  // namespace gc3::model
