// Every collective from C++, on ranks that are processes of this host. Each rank checks what it gets.
//
//   gc3 table export --ranks 4 -o programs
//   mpirun -n 4 gc3_collectives programs              or torchrun, srun, or by hand:
//   for r in 0 1 2 3; do RANK=$r WORLD_SIZE=4 MASTER_PORT=29500 gc3_collectives programs & done; wait
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "gc3/gc3.h"

namespace {

using gc3::Communicator;
using gc3::DataType;
using gc3::ReduceOp;
using gc3::Status;

constexpr std::size_t kCount = 1000;

int complain(const gc3::Diagnostic& problem) {
  std::fprintf(stderr, "%s\n", problem.str().c_str());
  return 1;
}

// The first problem of a run of calls, and the results that were not as expected.
class Checks {
 public:
  void expect(const char* what, const Status& status, const std::vector<float>& got, const std::vector<float>& wanted) {
    if (!status.ok()) std::fprintf(stderr, "%s: %s\n", what, status.error().str().c_str());
    if (status.ok() && got != wanted) std::fprintf(stderr, "%s: a wrong result\n", what);
    if (!status.ok() || got != wanted) ++failed_;
  }
  int failed() const { return failed_; }

 private:
  int failed_ = 0;
};

// Rank r contributes `blocks` blocks, of which block b holds 100 r + b.
std::vector<float> contribution(std::uint32_t rank, std::uint32_t blocks) {
  std::vector<float> values;
  for (std::uint32_t b = 0; b < blocks; ++b) values.insert(values.end(), kCount, static_cast<float>(100 * rank + b));
  return values;
}

int run(Communicator& comm) {
  const std::uint32_t n = comm.size();
  const std::uint32_t rank = comm.rank();
  const float of_ranks = 100.0F * static_cast<float>(n * (n - 1) / 2);  // the sum of 100 r over all ranks
  const std::vector<float> one = contribution(rank, 1);
  const std::vector<float> many = contribution(rank, n);
  const std::vector<float> total(kCount, of_ranks);
  std::vector<float> joined;
  std::vector<float> exchanged;
  for (std::uint32_t r = 0; r < n; ++r) {
    joined.insert(joined.end(), kCount, static_cast<float>(100 * r));
    exchanged.insert(exchanged.end(), kCount, static_cast<float>(100 * r + rank));
  }
  const std::uint32_t root = n - 1;
  Checks checks;
  std::vector<float> out(kCount);
  std::vector<float> wide(n * kCount);

  checks.expect("all_reduce", comm.all_reduce(one.data(), out.data(), kCount, DataType::float32), out, total);
  out = one;
  checks.expect("all_reduce in place", comm.all_reduce(out.data(), out.data(), kCount, DataType::float32), out, total);
  checks.expect("all_reduce max", comm.all_reduce(one.data(), out.data(), kCount, DataType::float32, ReduceOp::max),
                out, std::vector<float>(kCount, 100.0F * static_cast<float>(n - 1)));
  checks.expect("all_gather", comm.all_gather(one.data(), wide.data(), kCount, DataType::float32), wide, joined);
  checks.expect("all_gather in place",
                comm.all_gather(wide.data() + rank * kCount, wide.data(), kCount, DataType::float32), wide, joined);
  checks.expect("reduce_scatter", comm.reduce_scatter(many.data(), out.data(), kCount, DataType::float32), out,
                std::vector<float>(kCount, of_ranks + static_cast<float>(n * rank)));
  checks.expect("all_to_all", comm.all_to_all(many.data(), wide.data(), kCount, DataType::float32), wide, exchanged);
  out = one;
  checks.expect("broadcast", comm.broadcast(out.data(), kCount, DataType::float32, root), out, contribution(root, 1));
  out = one;
  checks.expect("reduce", comm.reduce(one.data(), out.data(), kCount, DataType::float32, ReduceOp::sum, root),
                rank == root ? out : total, total);
  wide.assign(n * kCount, 0);
  checks.expect("gather", comm.gather(one.data(), wide.data(), kCount, DataType::float32, root),
                rank == root ? wide : joined, joined);
  checks.expect("scatter",
                comm.scatter(rank == root ? many.data() : nullptr, out.data(), kCount, DataType::float32, root), out,
                std::vector<float>(kCount, static_cast<float>(100 * root + rank)));
  checks.expect("all_to_next", comm.all_to_next(one.data(), out.data(), kCount, DataType::float32),
                rank == 0 ? one : out, rank == 0 ? one : contribution(rank - 1, 1));

  std::vector<float> later(kCount);
  const gc3::Handle first = comm.all_reduce_async(one.data(), later.data(), kCount, DataType::float32);
  const gc3::Handle second = comm.all_gather_async(one.data(), wide.data(), kCount, DataType::float32);
  checks.expect("all_gather_async", second.wait(), wide, joined);
  checks.expect("all_reduce_async", first.wait(), later, total);
  const gc3::Result<std::string> why = comm.explain(gc3::CollectiveKind::allreduce, kCount, DataType::float32);
  if (!why.ok()) return complain(why.error());
  if (rank == 0) std::printf("%s\n", why.value().c_str());

  auto half = comm.split(rank % 2, rank);
  if (!half.ok()) return complain(half.error());
  const Status met = half.value()->barrier();
  if (!met.ok()) return complain(met.error());
  std::printf("rank %u of %u: %d of 14 results are wrong\n", rank, n, checks.failed());
  return checks.failed() == 0 ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  gc3::Result<Communicator> made = gc3::init({.programs = argc > 1 ? argv[1] : "programs"});
  if (!made.ok()) return complain(made.error());
  return run(made.value());
}
