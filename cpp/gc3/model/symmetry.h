// Whether a program of a collective remains one when its ranks get other numbers.
#pragma once

#include "gc3/model/collective.h"

namespace gc3::model {

// What a rank gets depends only on which blocks are its own, and on the root.
constexpr bool is_symmetric(CollectiveKind k) { return k != CollectiveKind::alltonext && k != CollectiveKind::custom; }

}  // namespace gc3::model
