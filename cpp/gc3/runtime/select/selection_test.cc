// The choice among rows: the first that fits is used, and every reason is reported.
#include "gc3/runtime/select/selection.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

#include "gc3/base/errors/runtime.h"

namespace gc3::select {
namespace {

using model::CollectiveKind;

Row row(const std::string& source, std::uint64_t first, std::optional<std::uint64_t> end) {
  Row made;
  made.limits.size.first = first;
  made.limits.size.last = end;
  made.source = source;
  made.recipe = std::make_shared<const Recipe>(Recipe{{}, "program of " + source});
  return made;
}

CallShape call(std::uint64_t size, bool in_place = false, std::uint32_t ranks = 3) {
  return {CollectiveKind::allreduce, ranks, size, in_place, 0};
}

TEST_CASE("the first row that fits is used, and rows put first are tried first") {
  Selection selection({row("a", 0, 100), row("b", 0, {})});
  CHECK(selection.find(call(99))->source == "a");
  CHECK(selection.find(call(100))->source == "b");
  const Selection before = selection;
  for (const char* name : {"first", "second"}) {
    selection.put_first(row(name, 40, 80));
    CHECK(selection.find(call(40))->source == name);
    CHECK(selection.explain(call(40)).value().row->source == name);
  }
  CHECK(selection.find(call(80))->source == "a");
  CHECK(before.find(call(40))->source == "a");
}

TEST_CASE("rows with a one-sided form leave what is not in registered memory to the next one without") {
  Row direct = row("direct", 0, 200);
  direct.recipe = std::make_shared<const Recipe>(
      Recipe{.make = {}, .text = "puts", .lower = [](const ir::Program&) -> Result<ir::direct::Program> {
               return Diagnostic(ErrorCode::BadTable, "none");
             }});
  const Selection selection({direct, row("a", 0, 100)});
  CHECK(selection.find(call(99))->source == "direct");
  CHECK(selection.find_messages(call(99))->source == "a");
  CHECK(selection.find_messages(call(199))->source == "direct");  // no other one serves it
  CHECK(selection.find_messages(call(200)) == nullptr);
  const auto said = [&](std::uint64_t size) { return selection.explain(call(size)).value().str(); };
  CHECK(said(99).find("\n  on other memory: program of a, by a") != std::string::npos);
  CHECK(said(199).find("on other memory") == std::string::npos);
}

TEST_CASE("rows near a call serve it, or would with another size; the nearest come first") {
  Row other = row("other ranks", 0, {});
  other.limits.ranks.first = 4;
  const Selection selection({row("far", 1 << 20, {}), row("near", 2048, 1 << 20), row("mine", 100, 2048), other,
                             row("small", 0, 100), row("all", 0, {})});
  std::string names;
  for (const auto& found : selection.near(call(1000))) names += found->source + " ";
  CHECK(names == "mine all near small far ");
  CHECK(selection.digest() != 0);
  CHECK(selection.digest() == Selection(selection).digest());
  CHECK(selection.digest() != Selection({row("mine", 100, 2048)}).digest());
  CHECK(Selection({row("mine", 100, 2048)}).digest() != Selection({row("mine", 100, {})}).digest());
  CHECK(Selection({row("mine", 100, {})}).digest() != Selection({row("ours", 100, {})}).digest());  // other programs
  CHECK(Selection().digest() == 0);
}

TEST_CASE("a row says why it does not serve a call") {
  Row only = row("t.json row 1", 65536, 2097152);
  only.limits.ranks.first = 2;
  only.limits.ranks.last = 4;
  only.limits.in_place = true;
  only.limits.root = 1;
  CHECK(only.misfit(call(65536, true, 5)) == "for 2 to 4 ranks");
  CHECK(only.misfit(call(65535, true)) == "for 64 KiB to less than 2 MiB");
  CHECK(only.misfit(call(2097152, true)) == "for 64 KiB to less than 2 MiB");
  CHECK(only.misfit(call(65536)) == "for calls in place");
  CHECK(only.misfit(call(65536, true)) == "for root 1");
  CHECK(only.misfit({CollectiveKind::allreduce, 3, 65536, true, 1}).empty());
  CHECK_FALSE(only.serves({CollectiveKind::broadcast, 3, 65536, true, 1}));
  only.limits.skew.first = 1.5;
  CallShape skewed{CollectiveKind::allreduce, 3, 65536, true, 1};
  CHECK(only.misfit(skewed) == "for a skew of 1.5 and more");
  only.limits.skew.last = 4;
  skewed.skew = 3.99;
  CHECK(only.serves(skewed));
  skewed.skew = 4;
  CHECK(only.misfit(skewed) == "for a skew of 1.5 to less than 4");
  only.limits.skew.first = 1;
  CHECK(only.misfit(skewed) == "for a skew of less than 4");
}

TEST_CASE("the skew of counts is the longest one divided by the mean") {
  using Counts = std::vector<std::uint64_t>;
  CHECK(CallShape::skew_of(Counts{7, 7, 7}) == 1);
  CHECK(CallShape::skew_of(Counts{0, 0, 12}) == 3);
  CHECK(CallShape::skew_of(Counts{0, 0}) == 1);
  CHECK(CallShape::skew_of(Counts{~std::uint64_t{0}, ~std::uint64_t{0}}) == 1);
}

TEST_CASE("a row was made for calls whose limits it names") {
  Row made = row("a", 0, 100);
  CHECK(made.unmade(call(50)) == "numbers of ranks");
  made.limits.ranks.last = 3;
  CHECK(made.unmade(call(50)).empty());
  CallShape skewed = call(50);
  skewed.skew = 3;
  CHECK(made.unmade(skewed) == "skews");
  made.limits.skew.last = 4;
  CHECK(made.unmade(skewed).empty());
  made.limits.size.last = {};
  CHECK(made.unmade(call(50)) == "sizes");
}

TEST_CASE("rows for hosts serve as many ranks on each of so many hosts") {
  Row only = row("hosts.json row 1", 0, {});
  only.limits.nodes.first = 2;
  only.limits.nodes.last = 4;
  only.limits.ranks_per_node = Counts{2};
  const auto placed = [](std::uint32_t ranks, std::uint32_t nodes, std::uint32_t per_node) {
    CallShape shape = call(64, false, ranks);
    shape.nodes = nodes;
    shape.ranks_per_node = per_node;
    return shape;
  };
  CHECK(only.serves(placed(4, 2, 2)));
  CHECK(only.misfit(placed(4, 1, 4)) == "for 2 to 4 hosts");
  CHECK(only.misfit(placed(2, 2, 1)) == "for 2 or more ranks on each host");
  CHECK(only.misfit(placed(4, 2, 0)) == "for as many ranks on each host");
  only.limits.transport = TransportKind::ucx;
  CallShape over_tcp = placed(4, 2, 2);
  over_tcp.transport = TransportKind::tcp;
  CHECK(over_tcp.describe() == "allreduce of 64 B on 4 ranks, out of place, on 2 hosts, over tcp");
  CHECK(only.misfit(over_tcp) == "for messages over ucx");
  only.limits.transport = TransportKind::tcp;
  CHECK(only.serves(over_tcp));
  CHECK(Selection({only}).digest() != Selection({row("hosts.json row 1", 0, {})}).digest());
  only.limits.transport.reset();
  CallShape mixed = placed(4, 2, 2);
  mixed.order = std::make_shared<const std::vector<std::uint32_t>>(std::vector<std::uint32_t>{0, 2, 1, 3});
  CHECK(mixed.describe() == "allreduce of 64 B on 4 ranks, out of place, on 2 hosts, whose ranks are not in blocks");
  CHECK(only.misfit(mixed) == "for ranks in blocks");
  only.recipe = std::make_shared<const Recipe>(Recipe{{}, "renames", 0, 0, {}, true});
  CHECK(only.serves(mixed));
  only.kind = mixed.kind = model::CollectiveKind::alltonext;
  CHECK(only.misfit(mixed) == "for ranks in blocks");
  only.kind = model::CollectiveKind::allreduce;
  const Selection selection({only, row("default.json row 1", 0, {})});
  CHECK(selection.find(placed(4, 2, 2))->source == "hosts.json row 1");
  const auto unequal = selection.explain(placed(5, 2, 0));
  REQUIRE(unequal.ok());
  CHECK(unequal.value().call ==
        "allreduce of 64 B on 5 ranks, out of place, on 2 hosts with different numbers of ranks");
  CHECK(unequal.value().str().find("not hosts.json row 1: for as many ranks on each host") != std::string::npos);
  CHECK(selection.explain(placed(4, 1, 4)).value().passed_over.empty());
}

TEST_CASE("an explanation names the program, the row and those passed over") {
  Row last = row("b", 100, {});
  last.note = "measured";
  const Selection selection({row("a", 0, 100), last});
  const auto found = selection.explain(call(4096));
  REQUIRE(found.ok());
  CHECK(found.value().number == 1);
  CHECK(found.value().str() ==
        "allreduce of 4 KiB on 3 ranks, out of place: program of b\n  chosen by b: measured\n  not a: for less than "
        "100 B");
  const auto none = Selection({row("a", 0, 100)}).explain(call(100));
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == ErrorCode::BadTable);
  CHECK(none.error().message == "no row serves allreduce of 100 B on 3 ranks, out of place");
  REQUIRE(none.error().notes.size() == 1);
  CHECK(none.error().notes[0].text == "a: for less than 100 B");
}

TEST_CASE("a row says which calls it serves, and whether these are all of another's") {
  Row wide = row("wide", 0, {});
  CHECK(wide.describe() == "allreduce, any number of ranks, any size");
  Row narrow = row("narrow", 100, 200);
  narrow.limits.ranks.first = 2;
  narrow.limits.ranks.last = 4;
  narrow.limits.in_place = true;
  narrow.limits.root = 0;
  narrow.limits.nodes.first = 2;
  narrow.limits.ranks_per_node = Counts{2, 2};
  narrow.limits.transport = TransportKind::tcp;
  narrow.limits.skew.last = 1.5;
  narrow.adapt = false;
  CHECK(narrow.describe() ==
        "allreduce, 2 to 4 ranks, 100 B to less than 200 B, in place, root 0, 2 or more hosts, 2 ranks on each, over "
        "tcp, skew 1 to less than 1.5, never adapts");
  CHECK(wide.covers(wide));
  CHECK(wide.covers(narrow));
  CHECK(narrow.covers(narrow));
  CHECK_FALSE(narrow.covers(wide));
  const auto misses = [&](auto change) {
    Row other = narrow;
    change(other);
    if (other.recipe == narrow.recipe) CHECK(Selection({other}).digest() != Selection({narrow}).digest());
    return !narrow.covers(other);
  };
  Row adapts = narrow;
  adapts.adapt = true;
  CHECK(Selection({adapts}).digest() != Selection({narrow}).digest());
  CHECK(misses([](Row& other) { other.kind = CollectiveKind::reduce; }));
  CHECK(misses([](Row& other) { other.name = "mine"; }));
  CHECK(misses([](Row& other) { other.condition = "d1"; }));
  CHECK(misses([](Row& other) { other.limits.ranks.last = {}; }));
  CHECK(misses([](Row& other) { other.limits.size.first = 99; }));
  CHECK(misses([](Row& other) { other.limits.in_place = {}; }));
  CHECK(misses([](Row& other) { other.limits.root = 1; }));
  CHECK(misses([](Row& other) { other.limits.nodes.first = 1; }));
  CHECK(misses([](Row& other) { other.limits.ranks_per_node->last = 3; }));
  CHECK(misses([](Row& other) { other.limits.transport = {}; }));
  CHECK(misses([](Row& other) { other.limits.skew.last = 2; }));
  // A row whose program takes ranks in any order also serves calls whose ranks are not in blocks.
  CHECK(misses([](Row& other) {
    other.recipe = std::make_shared<const Recipe>(Recipe{.make = {}, .text = "renaming", .renames = true});
  }));
}

TEST_CASE("a custom collective is found by its name and its condition") {
  const auto own = [](const std::string& name, const std::string& condition) {
    Row made = row(name + " " + condition, 0, {});
    made.kind = CollectiveKind::custom;
    made.name = name;
    made.condition = condition;
    return made;
  };
  const Selection selection({row("all", 0, {}), own("mirror", "d1"), own("mirror", "d2"), own("shift", "d1")});
  CallShape asked = call(64);
  asked.kind = CollectiveKind::custom;
  asked.name = "mirror";
  asked.condition = "d2";
  CHECK(selection.find(asked)->source == "mirror d2");
  const Explanation told = selection.explain(asked).value();
  CHECK(told.call == "mirror of 64 B on 3 ranks, out of place");
  REQUIRE(told.passed_over.size() == 1);  // none of another name
  CHECK(told.passed_over[0].second == "for a 'mirror' of another condition, d1, where that of the call is d2");
  asked.condition = "d3";
  CHECK(selection.find(asked) == nullptr);
  const auto missing = selection.explain(asked);
  REQUIRE(!missing.ok());
  CHECK(missing.error().notes.size() == 3);  // both rows, and what to do
  CHECK(own("mirror", "d1").describe().starts_with("mirror, any number of ranks"));
  CHECK(Selection({own("mirror", "d1")}).digest() != Selection({own("mirror", "d2")}).digest());
  CHECK(Selection({own("mirror", "d1")}).digest() != Selection({own("mirrord", "1")}).digest());
}

TEST_CASE("ranges as text") {
  CHECK(ranks_text(1, {}) == "any number of ranks");
  CHECK(ranks_text(3, 3) == "3 ranks");
  CHECK(ranks_text(1, 1) == "1 rank");
  CHECK(ranks_text(5, 7) == "5 to 7 ranks");
  CHECK(ranks_text(17, {}) == "17 ranks and more");
  CHECK(sizes_text(0, {}) == "any size");
  CHECK(sizes_text(0, 256) == "less than 256 B");
  CHECK(sizes_text(4096, {}) == "4 KiB and more");
  CHECK(sizes_text(1536, 1U << 30U) == "1536 B to less than 1 GiB");
}

}  // namespace
}  // namespace gc3::select
