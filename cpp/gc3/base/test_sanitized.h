// Whether a sanitizer watches the tests.
#pragma once

namespace gc3::testing {

// Under a sanitizer, where code is about ten times slower, long tests do less.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace gc3::testing
