// Result<T>: a value, or the Diagnostic that says why there is none. Nothing below the bindings throws on purpose.
#pragma once

#include <utility>
#include <variant>

#include "gc3/base/diagnostic.h"

namespace gc3 {

// A diagnostic that is seldom there: one word, so that success costs no more than that.
class Problem {
 public:
  Problem() = default;
  explicit Problem(Diagnostic&& diagnostic);
  ~Problem() {
    if (at_ != nullptr) discard();
  }
  Problem(const Problem& other);
  Problem(Problem&& other) noexcept : at_(std::exchange(other.at_, nullptr)) {}
  Problem& operator=(Problem other) noexcept {
    std::swap(at_, other.at_);
    return *this;
  }

  explicit operator bool() const { return at_ != nullptr; }
  Diagnostic& operator*() { return *at_; }
  const Diagnostic& operator*() const { return *at_; }

 private:
  void discard();

  Diagnostic* at_ = nullptr;
};

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}               // NOLINT(*-explicit-*)
  Result(Diagnostic problem) : state_(std::in_place_index<1>, std::move(problem)) {}  // NOLINT(*-explicit-*)
  Result(Problem problem) : state_(std::in_place_index<1>, std::move(problem)) {}     // NOLINT(*-explicit-*)

  bool ok() const { return state_.index() == 0; }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  const Diagnostic& error() const { return *std::get<1>(state_); }
  Diagnostic& error() { return *std::get<1>(state_); }
  Problem problem() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Problem> state_;
};

// Success without a value.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Diagnostic problem) : problem_(std::move(problem)) {}  // NOLINT(*-explicit-*)
  Status(Problem problem) : problem_(std::move(problem)) {}     // NOLINT(*-explicit-*)

  bool ok() const { return !problem_; }
  const Diagnostic& error() const { return *problem_; }
  Diagnostic& error() { return *problem_; }
  Problem problem() && { return std::move(problem_); }

 private:
  Problem problem_;
};

}  // namespace gc3

// Returns the diagnostic from the function if `expr` (a Status or Result) failed.
#define GC3_CHECK(expr)                                 \
  do {                                                  \
    if (auto gc3_status_ = (expr); !gc3_status_.ok()) { \
      return std::move(gc3_status_).problem();          \
    }                                                   \
  } while (false)

#define GC3_CONCAT_INNER_(a, b) a##b
#define GC3_CONCAT_(a, b) GC3_CONCAT_INNER_(a, b)
// GC3_ASSIGN(auto x, f()): sets x to the value, or returns the diagnostic from the function.
#define GC3_ASSIGN(declaration, expr) GC3_ASSIGN_IMPL_(GC3_CONCAT_(gc3_result_, __LINE__), declaration, expr)
#define GC3_ASSIGN_IMPL_(tmp, declaration, expr)  \
  auto tmp = (expr);                              \
  if (!tmp.ok()) return std::move(tmp).problem(); \
  declaration = std::move(tmp).value()
