// Judges all files of a folder once, so that the inputs that fuzzing has found remain tests.
//   gc3_corpus_test FOLDER
#include <cstdio>
#include <filesystem>

#include "gc3/ir/file.h"
#include "judge.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  std::size_t files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(argv[1])) {
    std::fprintf(stderr, "%s\n", entry.path().c_str());  // the last one named is the one that failed
    const auto bytes = gc3::ir::read_file(entry.path().string());
    if (!bytes.ok()) return 1;
    gc3::fuzz::judge(bytes.value());
    ++files;
  }
  std::printf("%zu files\n", files);
  return files > 0 ? 0 : 1;
}
