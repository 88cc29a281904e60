// The inputs that are reduced into a value, each with how often.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "gc3/model/collective.h"

namespace gc3::model {

using Terms = std::map<InputChunk, std::uint64_t>;

Terms counted(const std::vector<InputChunk>& inputs);

// What `all` has more of than `some`.
Terms difference(const Terms& all, const Terms& some);

}  // namespace gc3::model
