# Writes a C++ file that holds the text of other files: cmake -DOUTPUT=... -DROOT=... -DFILES=a|b|... -P this.
string(REPLACE "|" ";" files "${FILES}")
file(WRITE "${OUTPUT}.new" "// Made by tools/embed_sources.cmake.\n#include \"gc3/runtime/cuda/nvrtc.h\"\n\n\
namespace gc3::cuda {\n\nconst std::vector<SourceFile>& kernel_sources() {\n  static const std::vector<SourceFile> files = {\n")
foreach(name IN LISTS files)
  file(READ "${ROOT}/${name}" text)
  file(APPEND "${OUTPUT}.new" "      {\"${name}\", R\"gc3source(" "${text}" ")gc3source\"},\n")
endforeach()
file(APPEND "${OUTPUT}.new" "  };\n  return files;\n}\n\n}  // namespace gc3::cuda\n")
file(RENAME "${OUTPUT}.new" "${OUTPUT}")
