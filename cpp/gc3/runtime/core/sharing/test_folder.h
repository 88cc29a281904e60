// For tests: a folder that is removed afterwards.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace gc3::core::testing {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/gc3-kept-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace gc3::core::testing
