#include "gc3/ir/xml_write.h"

#include <doctest/doctest.h>

#include "gc3/base/errors/common.h"
#include "gc3/ir/test_programs.h"
#include "gc3/ir/test_sample.h"
#include "gc3/ir/text.h"
#include "gc3/ir/xml_read.h"

namespace gc3::ir {
namespace {

using testing::kSampleAsText;

Program sample() { return parse_text(kSampleAsText).value(); }

std::string write(const Program& p, XmlDialect dialect, const char* target = nullptr) {
  const auto xml = write_xml(p, {.dialect = dialect, .target = target == nullptr ? nullptr : find_xml_target(target)});
  return xml.ok() ? xml.value() : xml.error().message;
}

TEST_CASE("xml: golden form in both dialects") {
  const Program p = sample();
  CHECK(write(p, XmlDialect::msccl) ==
        R"(<algo name="a &amp; b" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="0" o_chunks="2" s_chunks="1">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/>
      <step s="2" type="r" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="1" hasdep="0"/>
      <step s="1" type="cpy" srcbuf="o" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="0" deps="2" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="0" o_chunks="2" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="o" srcoff="0" dstbuf="o" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="o" srcoff="1" dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
)");
  const auto rccl = write_xml(p, {.dialect = XmlDialect::rccl, .min_bytes = 8, .max_bytes = 4096});
  CHECK(rccl.value().starts_with(R"(<algo name="a &amp; b" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" )"
                                 R"(coll="allreduce" inplace="1" outofplace="0" minBytes="8" maxBytes="4096">)"));
  // microsoft/msccl serves sizes below maxBytes, the others sizes up to it.
  const auto msccl = write_xml(p, {.dialect = XmlDialect::msccl, .min_bytes = 8, .max_bytes = 4096});
  CHECK(msccl.value().find(R"(inplace="1" minBytes="8" maxBytes="4097">)") != std::string::npos);
  for (const std::string& xml : {rccl.value(), msccl.value()}) {
    const ProgramFile back = read_xml(xml).value();
    CHECK(back.program == p);
    CHECK((back.in_place && !back.out_of_place && back.min_bytes == 8 && back.max_bytes == 4096));
  }
  const auto open = write_xml(p, {.dialect = XmlDialect::msccl, .min_bytes = 8, .max_bytes = 0});
  CHECK(open.value().find(R"(inplace="1" minBytes="8">)") != std::string::npos);
}

TEST_CASE("xml: names and numbers at the limits of XML and of the other forms") {
  Program p = testing::random_coherent(1);
  p.slots = 0xffffffffU;
  p.instances = 0x80000000U;
  CHECK(read_xml(write(p, XmlDialect::rccl)).value().program == p);
  p.name = std::string("a\0b", 3);
  CHECK(write_xml(p, {}).error().code == ErrorCode::BadArgument);
}

TEST_CASE("xml: reductions that the runtimes would merge wrongly are kept apart") {
  Builder b;
  b.rank(40);
  b.threadblock(kNoRank, kNoRank, 0);
  const auto reduce = [&](std::uint32_t from, std::uint32_t count) {
    b.step({.opcode = Opcode::reduce,
            .src_buffer = model::Buffer::scratch,
            .dst_buffer = model::Buffer::output,
            .src_chunk = from,
            .count = count});
  };
  for (std::uint32_t k = 0; k < 20; ++k) reduce(k, 1);
  reduce(0, 2);
  Program p = std::move(b.program());
  p.collective = model::Collective::builtin(model::CollectiveKind::allreduce, 1, 4, 0, false).value();
  p.slots = 2;
  const std::string xml = write(p, XmlDialect::rccl);
  std::vector<std::string> published;
  for (std::size_t at = 0; (at = xml.find("hasdep=\"1\"", at)) != std::string::npos; ++at) {
    const std::size_t line = xml.rfind("s=\"", xml.rfind("<step", at) + 8);
    published.push_back(xml.substr(line, xml.find(' ', line) - line));
  }
  CHECK(published == std::vector<std::string>{"s=\"15\"", "s=\"19\""});
  CHECK(read_xml(xml).value().program == p);
}

TEST_CASE("xml: limits name the target, the limit and the threadblock") {
  const auto program = [](std::uint32_t tbs, const auto& fill) {
    Builder b;
    for (std::uint32_t r = 0; r < 2; ++r) {
      b.rank(0);
      for (std::uint32_t t = 0; t < tbs; ++t) {
        b.threadblock(r == 0 ? 1 : kNoRank, r == 0 ? kNoRank : 0, t / 32);
        fill(b, r, t);
      }
    }
    Program p = std::move(b.program());
    p.collective = model::Collective::builtin(model::CollectiveKind::allreduce, 2, 40000, 0, false).value();
    p.slots = 2;
    return p;
  };
  const auto send = [](std::uint32_t chunk, std::uint32_t count) {
    return [=](Builder& b, std::uint32_t r, std::uint32_t) {
      b.step({.opcode = r == 0 ? Opcode::send : Opcode::recv,
              .dst_buffer = r == 0 ? model::Buffer::input : model::Buffer::output,
              .src_chunk = r == 0 ? chunk : 0,
              .dst_chunk = r == 0 ? 0 : chunk,
              .count = count});
    };
  };
  const Program wide = program(65, send(0, 1));
  CHECK(write(wide, XmlDialect::rccl, "rccl") == "rank 0 has 65 threadblocks, the limit of RCCL is 64");
  CHECK(write(wide, XmlDialect::rccl, "azure").starts_with("<algo"));
  CHECK(write(program(217, send(0, 1)), XmlDialect::msccl, "msccl") ==
        "rank 0 has 217 threadblocks, the limit of microsoft/msccl is 216");
  Program crowded = wide;
  for (Threadblock& tb : crowded.threadblocks) tb.channel = 0;
  CHECK(write(crowded, XmlDialect::rccl, "azure") ==
        "rank 0 threadblock 32 has 33 sending threadblocks on channel 0, the limit of the Azure executor is 32");
  crowded.threadblocks[0].channel = 32;
  CHECK(write(crowded, XmlDialect::msccl, "msccl") ==
        "rank 0 threadblock 0 has 33 channels, the limit of microsoft/msccl is 32");
  CHECK(write(program(1, send(0, 72)), XmlDialect::rccl, "rccl") ==
        "rank 0 threadblock 0 step 0 has 72 chunks at once, the limit of RCCL is 71");
  CHECK(write(program(1, send(32768, 1)), XmlDialect::rccl, "rccl") ==
        "rank 0 threadblock 0 step 0 has 32768 as the index of a chunk, the limit of RCCL is 32767");
  const Program longer = program(1, [&](Builder& b, std::uint32_t r, std::uint32_t t) {
    for (int k = 0; k < 65; ++k) send(0, 1)(b, r, t);
  });
  CHECK(write(longer, XmlDialect::rccl, "azure") ==
        "rank 0 threadblock 0 has 65 steps, the limit of the Azure executor is 64");
  CHECK(write(longer, XmlDialect::msccl, "msccl").starts_with("<algo"));
  const Program fused = sample();
  CHECK(write(fused, XmlDialect::rccl, "rccl") == "rank 0 threadblock 0 step 1: RCCL does not run 'rrcs'");
  CHECK(write(fused, XmlDialect::rccl, "azure").starts_with("<algo"));
  Program deep = fused;
  deep.slots = 9;
  CHECK(write(deep, XmlDialect::msccl, "msccl") ==
        "the program has 9 FIFO slots with protocol LL, the limit of microsoft/msccl is 8");
  deep.slots = 1;
  deep.name = std::string(256, 'n');
  CHECK(write(deep, XmlDialect::msccl, "msccl") ==
        "the program has 256 bytes in its name as XML, the limit of microsoft/msccl is 255");
  deep.name = std::string(52, '&');
  CHECK(write(deep, XmlDialect::msccl, "msccl") ==
        "the program has 260 bytes in its name as XML, the limit of microsoft/msccl is 255");
  Program builtin = program(1, send(0, 1));
  builtin.collective = model::Collective::builtin(model::CollectiveKind::alltoall, 2, 2, 0, false).value();
  builtin.name = "2D";
  CHECK(write(builtin, XmlDialect::msccl, "msccl") ==
        "the name '2D' makes microsoft/msccl run an AllToAll of its own instead");
  CHECK(write(builtin, XmlDialect::rccl, "rccl").starts_with("<algo"));
  Program gather = program(1, send(0, 1));
  gather.collective = model::Collective::builtin(model::CollectiveKind::gather, 2, 4, 1, false).value();
  CHECK(write(gather, XmlDialect::msccl, "msccl") ==
        "rank 1: microsoft/msccl takes only buffers of 4 chunks for 'custom', the output has 8");
  Program next = gather;
  next.collective = model::Collective::builtin(model::CollectiveKind::alltonext, 2, 4, 0, false).value();
  CHECK(write(next, XmlDialect::rccl) == "the dialect 'rccl' has no name for the collective 'alltonext'");
  CHECK(write(next, XmlDialect::msccl, "msccl").find("coll=\"custom\"") != std::string::npos);
  const Program waits = program(129, [](Builder& b, std::uint32_t r, std::uint32_t t) {
    const std::vector<Dependency> last = {{128, 0}};
    const bool waiting = t == 0;
    b.step({.opcode = r == 0 ? Opcode::send : Opcode::recv,
            .dst_buffer = r == 0 ? model::Buffer::input : model::Buffer::output,
            .has_dependents = static_cast<std::uint8_t>(t == 128 ? 1 : 0),
            .count = 1},
           waiting ? std::span<const Dependency>(last) : std::span<const Dependency>());
  });
  CHECK(write(waits, XmlDialect::msccl, "msccl") ==
        "rank 0 threadblock 0 step 0 has 128 as the threadblock it waits for, the limit of microsoft/msccl is 127");
}

TEST_CASE("xml: each limit of a target may be reached") {
  for (const XmlTarget& target : kXmlTargets) {
    const auto accepted = [&](std::uint32_t tbs, std::uint32_t steps, std::uint32_t per_channel) {
      Builder b;
      for (std::uint32_t r = 0; r < 2; ++r) {
        b.rank(0);
        for (std::uint32_t t = 0; t < tbs; ++t) {
          b.threadblock(r == 0 ? 1 : kNoRank, r == 0 ? kNoRank : 0, t / per_channel);
          for (std::uint32_t s = 0; s < steps; ++s) {
            b.step({.opcode = r == 0 ? Opcode::send : Opcode::recv,
                    .dst_buffer = r == 0 ? model::Buffer::input : model::Buffer::output,
                    .count = 1});
          }
        }
      }
      Program p = std::move(b.program());
      p.collective = model::Collective::builtin(model::CollectiveKind::allreduce, 2, 4, 0, false).value();
      return write_xml(p, {.dialect = target.dialect, .target = &target}).ok();
    };
    CAPTURE(target.name);
    CHECK(accepted(target.threadblocks, 1, target.threadblocks_per_channel));
    CHECK_FALSE(accepted(target.threadblocks + 1, 1, target.threadblocks_per_channel));
    CHECK(accepted(1, target.steps, 1));
    CHECK_FALSE(accepted(1, target.steps + 1, 1));
    CHECK(accepted(target.threadblocks_per_channel, 1, target.threadblocks_per_channel));
    CHECK_FALSE(accepted(target.threadblocks_per_channel + 1, 1, target.threadblocks_per_channel + 1));
    const std::uint32_t channels = std::min(target.channels, target.threadblocks);
    CHECK(accepted(channels, 1, 1));
    if (channels < target.threadblocks) CHECK_FALSE(accepted(channels + 1, 1, 1));
  }
}

TEST_CASE("xml: programs that the format cannot hold") {
  Program p = sample();
  const std::size_t copy = 3;  // the first step of rank 0's second threadblock
  REQUIRE(p.instructions[copy].dep_count == 2);
  Program nop = p;
  nop.instructions[1] = {.opcode = Opcode::nop, .has_dependents = 1};
  CHECK(write(nop, XmlDialect::msccl) == "rank 0 threadblock 1 step 0 waits for a nop, which XML cannot express");
  Program silent = p;
  silent.instructions[1].has_dependents = 0;
  CHECK(write(silent, XmlDialect::msccl) == "rank 0 threadblock 1 step 0 waits for a step that does not signal");
  Program wild = p;
  wild.dependencies[0].step = 99;
  CHECK(write(wild, XmlDialect::msccl) == "rank 0 threadblock 1 step 0 waits for a step that does not exist");
}

TEST_CASE("xml: reading what was written gives the same program") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const Program p = testing::random_coherent(seed);
    const auto rccl = write_xml(p, {.dialect = XmlDialect::rccl});
    REQUIRE(rccl.ok());
    const auto back = read_xml(rccl.value());
    REQUIRE_MESSAGE(back.ok(), back.error().str());
    CHECK(back.value().program == p);
    const auto msccl = write_xml(p, {.dialect = XmlDialect::msccl});
    REQUIRE(msccl.ok());
    // The msccl dialect calls gather and scatter custom, so the caller must name the collective.
    const auto told = read_xml(msccl.value(), "<xml>", {.collective = p.collective, .in_place = {}});
    REQUIRE(told.ok());
    CHECK(told.value().program == p);
  }
}

}  // namespace
}  // namespace gc3::ir
