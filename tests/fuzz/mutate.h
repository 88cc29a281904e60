// Makes new inputs out of old ones. Knows words and numbers, and nothing else of any format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace gc3::fuzz {

using Input = std::vector<std::byte>;

class Mutator {
 public:
  explicit Mutator(std::uint64_t seed) : random_(seed) {}

  // Takes the words of an input into the vocabulary.
  void learn(const Input& input);
  // One of the pool, changed in a few places. Later ones of the pool are chosen more often: they reached something new.
  Input mutated(const std::vector<Input>& pool);

 private:
  std::size_t below(std::size_t n) { return n == 0 ? 0 : random_() % n; }
  void change(Input& input, const std::vector<Input>& pool);
  void replace_word(Input& input);
  void replace_number(Input& input);

  std::mt19937_64 random_;
  std::vector<std::string> words_;
};

}  // namespace gc3::fuzz
