// Lattice reduction, for tests that forge values: small whole numbers whose weighted sums vanish (Lenstra, Lenstra and
// Lovász 1982, in the floating-point form of Schnorr and Euchner 1994).
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

namespace gc3::model::test {

__extension__ typedef __int128 Int128;
__extension__ typedef unsigned __int128 UInt128;

// A signed number of some 190 bits.
struct Long {
  Int128 high = 0;
  Int128 low = 0;  // in 0 .. 2^64 - 1

  static Long of(UInt128 value) {
    return {static_cast<Int128>(value >> 64U), static_cast<Int128>(static_cast<std::uint64_t>(value))};
  }
  void subtract(std::int64_t times, const Long& other) {
    low -= times * other.low;
    high += (low >> 64U) - times * other.high;
    low &= ~std::uint64_t{0};
  }
  bool zero() const { return high == 0 && low == 0; }
  double value() const {
    const bool small = high < Int128{1} << 62U && high >= -(Int128{1} << 62U);  // then exact where it is near 0
    return small ? static_cast<double>((high << 64U) + low) : std::ldexp(static_cast<double>(high), 64);
  }
};

// A weighted sum modulo a number that has to vanish.
struct Form {
  std::vector<UInt128> weights;
  Long modulus;  // zero: the sum itself has to vanish
};

using Numbers = std::vector<std::int64_t>;

class Lattice {
 public:
  explicit Lattice(std::vector<Form> forms) : forms_(std::move(forms)), columns_(forms_.front().weights.size()) {
    for (std::size_t j = 0; j < columns_; ++j) {
      Row row{Numbers(columns_), {}};
      row.numbers[j] = 1;
      for (const Form& form : forms_) row.sums.push_back(Long::of(form.weights[j]));
      rows_.push_back(std::move(row));
    }
    for (std::size_t f = 0; f < forms_.size(); ++f) {
      if (forms_[f].modulus.zero()) continue;
      Row row{Numbers(columns_), std::vector<Long>(forms_.size())};
      row.sums[f] = forms_[f].modulus;
      rows_.push_back(std::move(row));
    }
  }

  // A basis of the vectors for which all forms vanish, shortest first. The sums are taken into account bit by bit, so
  // that double precision is enough.
  std::vector<Numbers> relations() {
    constexpr int kBits = 5;
    constexpr int kWeight = -15;  // in the end a sum of 1 outweighs any vector of interest
    for (int shift = 130; shift > kWeight; shift -= kBits) reduce(std::ldexp(1, -shift));
    reduce(std::ldexp(1, -kWeight));
    std::vector<Numbers> found;
    for (const Row& row : rows_) {
      if (std::ranges::all_of(row.sums, &Long::zero)) found.push_back(row.numbers);
    }
    return found;
  }

 private:
  struct Row {
    Numbers numbers;
    std::vector<Long> sums;
  };
  using Vector = std::vector<double>;

  Vector vector(const Row& row, double scale) const {
    Vector v(row.numbers.begin(), row.numbers.end());
    for (std::size_t f = 0; f < forms_.size(); ++f) {
      v.push_back(row.sums[f].value() * (forms_[f].modulus.zero() ? std::ldexp(1, 15) : scale));
    }
    return v;
  }
  // `from` plus or minus the products of the first n. Nearly all of the time is here, so sanitizers do not check it.
  __attribute__((no_sanitize("address,thread,undefined"))) static double add(double from, double sign, const Vector& of,
                                                                             const Vector& and_of, std::size_t n) {
    const double* a = of.data();
    const double* b = and_of.data();
    for (std::size_t i = 0; i < n; ++i) from += sign * a[i] * b[i];
    return from;
  }

  void reduce(double scale) {
    constexpr double kDelta = 0.95;
    constexpr double kHalf = 0.51;  // with 0.5, a tie could alternate for ever
    const std::size_t n = rows_.size();
    std::vector<Vector> v;
    for (const Row& row : rows_) v.push_back(vector(row, scale));
    std::vector<Vector> mu(n, Vector(n));
    std::vector<Vector> r(n, Vector(n));
    for (std::size_t k = 0; k < n;) {
      for (bool changed = true; changed;) {
        changed = false;
        for (std::size_t j = 0; j <= k; ++j) {
          r[k][j] = add(add(0, 1, v[k], v[j], v[k].size()), -1, mu[j], r[k], j);
          mu[k][j] = r[k][j] / r[j][j];
        }
        for (std::size_t j = k; j-- > 0;) {
          if (std::abs(mu[k][j]) <= kHalf) continue;
          const auto times = static_cast<std::int64_t>(std::llround(mu[k][j]));
          changed = true;
          for (std::size_t l = 0; l < j; ++l) mu[k][l] -= static_cast<double>(times) * mu[j][l];
          for (std::size_t c = 0; c < columns_; ++c) rows_[k].numbers[c] -= times * rows_[j].numbers[c];
          for (std::size_t f = 0; f < forms_.size(); ++f) rows_[k].sums[f].subtract(times, rows_[j].sums[f]);
        }
        if (changed) v[k] = vector(rows_[k], scale);
      }
      if (k > 0 && r[k][k] < (kDelta - mu[k][k - 1] * mu[k][k - 1]) * r[k - 1][k - 1]) {
        std::swap(rows_[k], rows_[k - 1]);
        std::swap(v[k], v[k - 1]);
        --k;
      } else {
        ++k;
      }
    }
  }

  std::vector<Form> forms_;
  std::size_t columns_;
  std::vector<Row> rows_;
};

// The vector of the lattice near (around, around, ...) by Babai's nearest-plane method.
inline Numbers near(const std::vector<Numbers>& basis, std::int64_t around) {
  std::vector<std::vector<double>> planes;
  for (const Numbers& b : basis) {
    std::vector<double> plane(b.begin(), b.end());
    for (const auto& p : planes) {
      const double along = std::inner_product(b.begin(), b.end(), p.begin(), 0.0) /
                           std::inner_product(p.begin(), p.end(), p.begin(), 0.0);
      for (std::size_t c = 0; c < plane.size(); ++c) plane[c] -= along * p[c];
    }
    planes.push_back(std::move(plane));
  }
  std::vector<double> rest(basis.front().size(), static_cast<double>(around));
  Numbers found(rest.size());
  for (std::size_t i = basis.size(); i-- > 0;) {
    const double along = std::inner_product(rest.begin(), rest.end(), planes[i].begin(), 0.0) /
                         std::inner_product(planes[i].begin(), planes[i].end(), planes[i].begin(), 0.0);
    const auto times = static_cast<std::int64_t>(std::llround(along));
    for (std::size_t c = 0; c < rest.size(); ++c) {
      found[c] += times * basis[i][c];
      rest[c] -= static_cast<double>(times * basis[i][c]);
    }
  }
  return found;
}

// Positive counts for which the form vanishes.
inline Numbers vanishing_counts(Form form) {
  const std::vector<Numbers> basis = Lattice({std::move(form)}).relations();
  if (basis.empty()) return {};
  for (std::int64_t around = 8; around < 100; around += 4) {
    const Numbers counts = near(basis, around);
    if (std::ranges::all_of(counts, [](std::int64_t c) { return c > 0; })) return counts;
  }
  return {};
}

// A short vector whose entries sum to 0 and for which the forms vanish: it exchanges terms for as many others.
inline Numbers exchange(std::vector<Form> forms) {
  forms.push_back({std::vector<UInt128>(forms.front().weights.size(), 1), {}});
  const std::vector<Numbers> basis = Lattice(std::move(forms)).relations();
  return basis.empty() ? Numbers{} : basis.front();
}

}  // namespace gc3::model::test
