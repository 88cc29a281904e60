#include "gc3/ir/xml_runtime.h"

#include <doctest/doctest.h>

#include <string>

#include "gc3/ir/test_programs.h"
#include "gc3/ir/text.h"
#include "gc3/ir/xml_read.h"
#include "gc3/ir/xml_write.h"

namespace gc3::ir {
namespace {

// A rank with one threadblock of these steps.
std::string file(const std::string& steps) {
  return R"(<algo name="t" proto="Simple" nchannels="1" nchunksperloop="2" ngpus="1" coll="allreduce" inplace="0" )"
         R"(outofplace="1" minBytes="0" maxBytes="64" slots="5" instances="3" split="2">
<gpu id="0" i_chunks="2" o_chunks="2" s_chunks="8">
<tb id="0" send="-1" recv="-1" chan="0">
)" + steps +
         "</tb>\n</gpu>\n</algo>\n";
}

std::string executed(const std::string& steps) {
  const auto read = read_xml(file(steps), "f.xml", {.runtime = find_xml_target("rccl")});
  return read.ok() ? to_text(read.value().program) : read.error().str();
}

TEST_CASE("xml: reductions in a row become one, with the count of the last, and gc3's attributes do not count") {
  CHECK(
      executed(
          R"(<step s="0" type="re" srcbuf="s" srcoff="0" dstbuf="o" dstoff="0" cnt="2" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="1" hasdep="0"/>
<step s="2" type="re" srcbuf="s" srcoff="3" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
<step s="3" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="7" cnt="1" depid="0" deps="1" hasdep="0"/>
)") == R"(program "t" version 1
collective allreduce ranks 1 chunks 2
protocol Simple instances 1 slots 2

rank 0 scratch 8
  tb 0 channel 0
    0 reduce sc[0] -> out[0]
    1 reduce sc[3] -> out[0] signals
    2 copy in[0] -> sc[7] after (0:1, 0:1)
)");
}

TEST_CASE("xml: dependencies that the runtimes refuse are reported at the step") {
  CHECK(
      executed(
          R"(<step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="0" hasdep="0"/>
<step s="1" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="7" cnt="1" depid="-1" deps="-1" hasdep="0"/>
)")
          .find("f.xml:5") != std::string::npos);
  CHECK(
      executed(
          R"(<step s="0" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="7" cnt="1" depid="3" deps="0" hasdep="0"/>
)")
          .find("depid 3 of 1 threadblocks") != std::string::npos);
  CHECK(
      executed(
          R"(<step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="-1" deps="-1" hasdep="0"/>
<step s="1" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="7" cnt="1" depid="-1" deps="-1" hasdep="1"/>
<step s="2" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="6" cnt="1" depid="0" deps="1" hasdep="0"/>
)")
          .find("never sees done") != std::string::npos);
}

TEST_CASE("xml: a runtime executes what was written for it") {
  int written = 0;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Program p = testing::random_coherent(seed);
    for (const XmlTarget& target : kXmlTargets) {
      const auto xml = write_xml(p, {.dialect = target.dialect, .target = &target});
      if (!xml.ok()) continue;
      const auto back = read_xml(xml.value(), "<xml>", {.collective = p.collective, .runtime = &target});
      REQUIRE_MESSAGE(back.ok(), back.error().str());
      Program expected = p;  // with the FIFO slots of the runtime, and without gc3's own attributes
      expected.slots = back.value().program.slots;
      expected.instances = 1;
      CHECK(to_text(back.value().program) == to_text(expected));
      ++written;
    }
  }
  CHECK(written > 100);
}

}  // namespace
}  // namespace gc3::ir
