// The chunk positions that a program's data passes through.
//
// A block that is not divided evenly has chunks of different lengths: the class of a position is its index within its
// block. Data that starts in one class and passes through a position of another could lose its end if that position is
// shorter. This determines, without running the program, whether that can happen.
#pragma once

#include "gc3/runtime/interp/plan.h"

namespace gc3::interp {

// Whether data may move between positions of different classes, directly, through messages or through scratch. May be
// wrong only with true: a scratch chunk used for two classes one after the other counts.
bool moves_between_classes(const Plan& plan);

}  // namespace gc3::interp
