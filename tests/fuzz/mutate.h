// Makes new inputs from old ones. It knows words and numbers, and nothing else about formats.
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

  // Adds the words of an input to the vocabulary.
  void learn(const Input& input);
  // An input of the pool with a few changes. Later ones are chosen more often, because they have reached new edges.
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
