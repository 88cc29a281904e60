#include "gc3/runtime/core/sharing/cores.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

namespace gc3::core {
namespace {

bool read_number(std::string_view text, std::uint32_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

// Of a list such as "0-3,8"; none of a text that is no list.
Cores cores_of(std::string_view list) {
  Cores found;
  while (!list.empty()) {
    const std::string_view range = list.substr(0, list.find(','));
    list.remove_prefix(std::min(range.size() + 1, list.size()));
    const std::size_t dash = range.find('-');
    std::uint32_t first = 0;
    std::uint32_t last = 0;
    if (!read_number(range.substr(0, dash), first)) return {};
    if (!read_number(dash == std::string_view::npos ? range : range.substr(dash + 1), last)) return {};
    for (std::uint32_t core = first; core <= last && core < Cores::kMost; ++core) {
      found.words[core / 64] |= std::uint64_t{1} << core % 64;
    }
  }
  return found;
}

}  // namespace

Cores Cores::own() {
  Cores cores;
  syscall(SYS_sched_getaffinity, 0, sizeof cores.words, cores.words.data());
  return cores;
}

std::uint32_t Cores::count() const {
  std::uint32_t n = 0;
  for (const std::uint64_t w : words) n += static_cast<std::uint32_t>(__builtin_popcountll(w));
  return n;
}

std::vector<Cores> Cores::by_node(const std::string& root) const {
  std::vector<std::pair<std::uint32_t, Cores>> found;
  std::error_code problem;
  Cores rest = *this;
  for (const auto& entry : std::filesystem::directory_iterator(root + "/sys/devices/system/node", problem)) {
    std::uint32_t number = 0;
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("node") || !read_number(std::string_view(name).substr(4), number)) continue;
    std::ifstream file(entry.path() / "cpulist");
    std::string list;
    std::getline(file, list);
    const Cores node = cores_of(list);
    Cores mine;
    for (std::size_t w = 0; w < words.size(); ++w)
      mine.words[w] = std::exchange(rest.words[w], rest.words[w] & ~node.words[w]) & node.words[w];
    if (mine.count() != 0) found.emplace_back(number, mine);
  }
  std::ranges::sort(found, {}, &std::pair<std::uint32_t, Cores>::first);
  std::vector<Cores> nodes;
  for (const auto& [number, cores] : found) nodes.push_back(cores);
  if (nodes.empty() || rest.count() != 0) return {*this};  // incomplete: not used
  return nodes;
}

Cores Cores::part(std::uint32_t first, std::uint32_t last) const {
  Cores some;
  for (std::uint32_t bit = 0, seen = 0; bit < kMost && seen < last; ++bit) {
    const std::uint64_t flag = std::uint64_t{1} << bit % 64;
    if ((words[bit / 64] & flag) == 0) continue;
    if (seen++ >= first) some.words[bit / 64] |= flag;
  }
  return some;
}

Cores Cores::share_of(const Place& place, const std::string& root) const {
  const std::uint32_t all = count();
  if (all == 0) return {};
  const std::vector<Cores> nodes = by_node(root);
  // The cores from `first` to `last`, counted through the nodes one after the other.
  const auto counted = [&](std::uint32_t first, std::uint32_t last) {
    Cores share;
    for (const Cores& node : nodes) {
      const std::uint32_t has = node.count();
      const Cores of_node = node.part(first, last);
      for (std::size_t w = 0; w < words.size(); ++w) share.words[w] |= of_node.words[w];
      first -= std::min(first, has);
      last -= std::min(last, has);
    }
    return share;
  };
  const auto cut = [&](std::uint64_t rank) { return static_cast<std::uint32_t>(all * rank / place.size); };
  if (all < place.size) return counted(place.rank % all, place.rank % all + 1);
  if (place.size < nodes.size()) return counted(cut(place.rank), cut(std::uint64_t{place.rank} + 1));
  // A rank is in the node that has the middle of its part; the ranks of a node share its cores.
  const auto middle = [&](std::uint64_t rank) {
    return static_cast<std::uint32_t>((2 * rank + 1) * all / (2 * std::uint64_t{place.size}));
  };
  std::uint32_t start = 0;
  for (const Cores& node : nodes) {
    const std::uint32_t end = start + node.count();
    std::uint32_t before = 0;
    std::uint32_t here = 0;
    for (std::uint32_t rank = 0; rank < place.size; ++rank) {
      if (middle(rank) < start || middle(rank) >= end) continue;
      before += rank < place.rank ? 1 : 0;
      ++here;
    }
    if (middle(place.rank) >= start && middle(place.rank) < end) {
      return node.part(node.count() * before / here, node.count() * (before + 1) / here);
    }
    start = end;
  }
  return {};
}

void Cores::keep_here() const { syscall(SYS_sched_setaffinity, 0, sizeof words, words.data()); }

}  // namespace gc3::core
