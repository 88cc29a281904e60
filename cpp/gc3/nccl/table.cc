#include "gc3/nccl/table.h"

#include <sys/stat.h>

#include <map>
#include <utility>

#include "gc3/ir/file.h"
#include "gc3/ir/forms.h"
#include "gc3/runtime/select/program_folder.h"

namespace gc3::nccl {
namespace {

bool is_folder(const std::string& path) {
  struct stat found{};
  return stat(path.c_str(), &found) == 0 && S_ISDIR(found.st_mode);
}

Result<select::Row> row_of_program(const std::string& path) {
  GC3_ASSIGN(ir::ProgramFile file, ir::load_any(path));
  select::Row row;
  row.kind = file.program.collective.kind();
  row.limits = select::limits_of(file.program.collective);
  row.source = path;
  row.recipe = select::recipe_of(ir::as_read(std::move(file.program)), path);
  return row;
}

// A program may stand in several rows.
Result<std::string> digest_of(const std::string& path, std::map<std::string, std::string>& known) {
  const auto found = known.find(path);
  if (found != known.end()) return found->second;
  GC3_ASSIGN(const std::vector<std::byte> bytes, ir::read_file(path));
  return known[path] = hex(sha256({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
}

Result<Digest> digest_of(const std::vector<select::Row>& rows) {
  Sha256 all;
  std::map<std::string, std::string> known;
  for (select::Row row : rows) {
    const select::Recipe& recipe = *row.recipe;
    GC3_ASSIGN(std::string program, digest_of(recipe.text, known));  // its place may differ
    program += ' ' + std::to_string(recipe.slots) + ' ' + std::to_string(recipe.slot_bytes);
    row.recipe = std::make_shared<const select::Recipe>(select::Recipe{{}, program});
    row.add_to(all);
  }
  return all.finish();
}

}  // namespace

Result<std::shared_ptr<const Table>> load_table(const std::string& path, const Table* after) {
  auto table = std::make_shared<Table>();
  if (is_folder(path)) {
    GC3_ASSIGN(table->rows, select::read_program_folder(path));
  } else {
    GC3_ASSIGN(select::Row row, row_of_program(path));
    table->rows.push_back(std::move(row));
  }
  if (after != nullptr) table->rows.insert(table->rows.end(), after->rows.begin(), after->rows.end());
  GC3_ASSIGN(table->hash, digest_of(table->rows));
  return std::shared_ptr<const Table>(std::move(table));
}

}  // namespace gc3::nccl
