#include "gc3/ir/xml_read.h"

#include <doctest/doctest.h>

#include "gc3/base/errors/common.h"
#include "gc3/base/errors/files.h"
#include "gc3/ir/forms.h"
#include "gc3/ir/test_programs.h"
#include "gc3/ir/test_sample.h"
#include "gc3/ir/text.h"
#include "gc3/ir/xml_write.h"

namespace gc3::ir {
namespace {

using testing::kSampleAsText;

// Two ranks that exchange their halves; rank 1 also waits in a nop.
constexpr std::string_view kSample = R"(<!-- from elsewhere -->
<algo name="a &amp; b" proto="LL" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="1">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="s" dstoff="7" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/>
      <step s="2" type="r" srcbuf="i" srcoff="-1" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" srcbuf="i" srcoff="-1" dstbuf="o" dstoff="-1" cnt="0" depid="0" deps="1" hasdep="0"/>
      <step s="1" type="cpy" srcbuf="i" srcoff="0" dstbuf="s" dstoff="0" cnt="1" depid="0" deps="2" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="2" type="r" srcbuf="i" srcoff="-1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
)";

std::string edited(std::string_view from, std::string_view to) {
  std::string text(kSample);
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string as_text(const std::string& xml, const XmlReadOptions& options = {}) {
  const auto file = read_xml(xml, "x.xml", options);
  return file.ok() ? to_text(file.value().program) : file.error().str();
}

// "line: message" of the error that `xml` gives.
std::string fault(const std::string& xml, const XmlReadOptions& options = {}, ErrorId code = ErrorCode::BadXml) {
  const auto file = read_xml(xml, "x.xml", options);
  if (file.ok()) return "accepted";
  CHECK(file.error().code == code);
  CHECK(file.error().where.file == "x.xml");
  return std::to_string(file.error().where.line) + ": " + file.error().message;
}

// A file of `collective` with one idle threadblock per rank; `body` is the threadblock of rank 0.
std::string tiny(const std::string& collective, std::uint32_t ranks, const std::string& body = "") {
  std::string xml = "<algo name=\"t\" proto=\"Simple\" nchannels=\"1\" nchunksperloop=\"4\" ngpus=\"" +
                    std::to_string(ranks) + "\" " + collective + ">\n";
  for (std::uint32_t r = 0; r < ranks; ++r) {
    xml += "<gpu id=\"" + std::to_string(r) + "\" i_chunks=\"4\" o_chunks=\"4\" s_chunks=\"4\">\n" +
           (r == 0 ? body : std::string()) + "</gpu>\n";
  }
  return xml + "</algo>";
}

TEST_CASE("xml: nops, operands, names in place and comments") { CHECK(as_text(std::string(kSample)) == kSampleAsText); }

TEST_CASE("xml: the names of each collective, and its number of chunks from nchunksperloop") {
  const auto header = [](const std::string& coll) {
    const std::string text = as_text(tiny("coll=\"" + coll + "\" inplace=\"0\" outofplace=\"1\"", 2));
    const std::size_t at = text.find("collective ");
    REQUIRE_MESSAGE(at != std::string::npos, text);
    return text.substr(at, text.find('\n') == std::string::npos ? 0 : text.find('\n', at) - at);
  };
  CHECK(header("allreduce") == "collective allreduce ranks 2 chunks 4");
  CHECK(header("allgather") == "collective allgather ranks 2 chunks 2");
  CHECK(header("reduce_scatter") == "collective reducescatter ranks 2 chunks 2");
  CHECK(header("reducescatter") == "collective reducescatter ranks 2 chunks 2");
  CHECK(header("alltoall") == "collective alltoall ranks 2 chunks 2");
  CHECK(header("broadcast") == "collective broadcast ranks 2 chunks 4");
  CHECK(header("gather") == "collective gather ranks 2 chunks 4");
}

TEST_CASE("xml: the root of a rooted collective is the rank that behaves like one") {
  const auto with = [](const char* coll, const char* zero) {
    return read_xml(tiny(std::string("inplace=\"0\" coll=\"") + coll + "\"", 2, zero))
        .value()
        .program.collective.root();
  };
  CHECK(with("broadcast", R"(<tb id="0" send="-1" recv="1" chan="0"/>)") == 1);
  CHECK(with("broadcast", R"(<tb id="0" send="1" recv="-1" chan="0"/>)") == 0);
  CHECK(with("reduce", R"(<tb id="0" send="1" recv="-1" chan="0"/>)") == 1);
  CHECK(with("scatter", "") == 0);
  CHECK(read_xml(tiny(R"(coll="gather" inplace="0" root="1")", 2)).value().program.collective.root() == 1);
}

TEST_CASE("xml: a file for both uses is read for either, other files only for their own") {
  const std::string both =
      tiny(R"(coll="allreduce" inplace="1" outofplace="1")", 1,
           R"(<tb id="0" send="-1" recv="-1" chan="0"><step s="0" type="cpy" srcbuf="i" srcoff="0")"
           R"( dstbuf="o" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="0"></step></tb>)");
  CHECK(as_text(both).find("copy in[0] -> out[1]") != std::string::npos);
  CHECK(as_text(both, {.collective = {}, .in_place = true}).find("copy out[0] -> out[1]") != std::string::npos);
  CHECK(fault(std::string(kSample), {.collective = {}, .in_place = false}) == "2: the file is for use in place only");
}

TEST_CASE("xml: a collective given by the caller") {
  const std::string xml = tiny(R"(coll="custom" inplace="0")", 2);
  CHECK(fault(xml, {}, ErrorCode::UnknownPurpose) == "1: coll='custom' names no collective with a known result");
  const auto next = model::Collective::builtin(model::CollectiveKind::alltonext, 2, 4, 0, false).value();
  CHECK(read_xml(xml, "x", {.collective = next, .in_place = {}}).value().program.collective == next);
  const auto three = model::Collective::builtin(model::CollectiveKind::alltonext, 3, 4, 0, false).value();
  CHECK(fault(xml, {.collective = three, .in_place = {}}) == "1: the collective has 3 ranks, the file 2");
}

TEST_CASE("xml: the habits of other writers are tolerated") {
  CHECK(as_text("\xef\xbb\xbf<?xml version='1.0'?>" + std::string(kSample)) == kSampleAsText);
  CHECK(as_text(edited("inplace=\"1\">", "inplace='1'\tredop=\"nop\"  nthreads=\"512\"\n>")) == kSampleAsText);
  CHECK(as_text(edited("<tb id=\"1\"", "<hint><step/><tb/></hint>\n<tb id=\"1\"")) == kSampleAsText);
  CHECK(as_text(edited("srcoff=\"1\"", "srcoff=\"0x1\"")) == kSampleAsText);
  // A wait for a step that publishes nothing ends with the next step that does.
  CHECK(as_text(edited("dstoff=\"1\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"1\"",
                       "dstoff=\"1\" cnt=\"1\" depid=\"-1\" deps=\"-1\" hasdep=\"0\""))
            .find("after (0:2, 0:2)") != std::string::npos);
  // Ranks and threadblocks in any order.
  const std::string sample(kSample);
  const std::size_t first = sample.find("  <gpu id=\"0\"");
  const std::size_t second = sample.find("  <gpu id=\"1\"");
  const std::size_t end = sample.find("</algo>");
  CHECK(as_text(sample.substr(0, first) + sample.substr(second, end - second) + sample.substr(first, second - first) +
                "</algo>") == kSampleAsText);
}

TEST_CASE("xml: errors name the line and what is wrong") {
  CHECK(fault("") == "1: the file has no element");
  CHECK(fault("\n\n") == "3: the file has no element");
  CHECK(fault("hello") == "1: text 'hello' between the elements");
  CHECK(fault("<topo/>") == "1: expected <algo>, found element 'topo'");
  CHECK(fault(std::string(kSample) + "<algo/>").starts_with("22: a second element"));
  CHECK(fault(std::string(kSample.substr(0, kSample.find("type=")))) == "5: the tag is not closed");
  CHECK(fault(edited("</tb>\n  </gpu>", "</gpu>")) == "12: the end of element 'gpu' where 'tb' is open");
  CHECK(fault(edited("</algo>", "")) == "22: the file ends within element 'algo'");
  CHECK(fault(edited("<!-- from", "<!DOCTYPE a [<!ENTITY x \"y\">]> <!-- ")).starts_with("1: document types"));
  CHECK(fault(edited("-->", "--")).starts_with("1: a comment is not closed"));
  CHECK(fault(edited("&amp;", "&bomb;")) == "2: unknown reference '&bomb'");
  CHECK(fault(edited("&amp;", "&#0;")) == "2: unknown reference '&#0'");
  CHECK(fault(edited("a &amp;", "\xff")) == "2: name='\\xff b' where text in UTF-8 is expected");
  CHECK(fault(edited("proto=\"LL\"", "proto=\"ll\"")) == "2: proto='ll' where Simple, LL or LL128 is expected");
  CHECK(fault(edited("proto=\"LL\"", "proto=\"LL\" proto=\"LL\"")) == "2: attribute 'proto' is given twice");
  CHECK(fault(edited("proto=\"LL\" ", "")) == "2: <algo> lacks 'proto'");
  CHECK(fault(edited("proto=\"LL\"", "proto=LL")) == "2: the value of 'proto' is not in quotes");
  CHECK(fault(edited("proto=\"LL\"", "proto=\"LL\"x")) == "2: expected a blank, found 'x'");
  CHECK(fault(edited("ngpus=\"2\"", "ngpus=\"1000000000\"")).starts_with("2: invalid collective: more than") == false);
  CHECK(fault(edited("ngpus=\"2\"", "ngpus=\"3\"")) == "2: ngpus is 3, the file describes 2");
  CHECK(fault(edited("ngpus=\"2\"", "ngpus=\"0\"")).starts_with("2: ngpus='0' where a number from 1 to"));
  CHECK(fault(edited("inplace=\"1\"", "inplace=\"0\" outofplace=\"0\"")) == "2: inplace and outofplace are both 0");
  CHECK(fault(edited("nchunksperloop=\"2\"", "nchunksperloop=\"1000000000\"")).starts_with("2: invalid collective"));
  CHECK(fault(edited("allreduce", "alltoall\" nchunksperloop=\"3")) == "2: attribute 'nchunksperloop' is given twice");
  CHECK(fault(edited("gpu id=\"1\"", "gpu id=\"0\"")) == "15: send='0' where another rank is expected");
  const std::string twice = tiny("coll=\"allreduce\" inplace=\"0\"", 2);
  CHECK(fault(std::string(twice).replace(twice.find("id=\"1\""), 6, "id=\"0\"")) == "4: gpu 0 is described twice");
  CHECK(fault(edited("gpu id=\"0\"", "gpu id=\"2\"")) == "3: id='2' where a number from 0 to 1 is expected");
  CHECK(fault(edited("s_chunks=\"1\"", "s_chunks=\"-1\"")).starts_with("3: s_chunks='-1' where a number from 0"));
  CHECK(fault(edited("s_chunks=\"1\"", "s_chunks=\"2000000000\"")).starts_with("3: more scratch chunks"));
  CHECK(fault(edited("tb id=\"1\"", "tb id=\"2\"")) == "9: tb 1 is missing");
  CHECK(fault(edited("send=\"1\"", "send=\"0\"")) == "4: send='0' where another rank is expected");
  CHECK(fault(edited("chan=\"0\"", "chan=\"1\"")) == "4: chan='1' where a number from 0 to 0 is expected");
  CHECK(fault(edited("step s=\"1\"", "step s=\"2\"")) == "6: s='2' where step 1 is expected");
  CHECK(fault(edited("type=\"s\"", "type=\"ra\"")) ==
        "5: type='ra' where one of nop s r cpy re rcs rrc rrs rrcs is expected");
  CHECK(fault(edited("srcbuf=\"i\"", "srcbuf=\"x\"")) == "5: srcbuf='x' where i, o or s is expected");
  CHECK(fault(edited("cnt=\"1\"", "cnt=\"0\"")).starts_with("5: cnt='0' where a number from 1 to"));
  CHECK(fault(edited("srcoff=\"0\"", "srcoff=\"-1\"")) ==
        "5: chunks -1 to -1 of the 2 chunks of input that the gpu declares");
  CHECK(fault(edited("srcoff=\"0\"", "srcoff=\"2\"")) ==
        "5: chunks 2 to 2 of the 2 chunks of input that the gpu declares");
  CHECK(fault(edited("i_chunks=\"2\"", "i_chunks=\"9\"")) == "accepted");
  CHECK(fault(edited("depid=\"0\" deps=\"1\"", "depid=\"5\" deps=\"1\"")) == "10: depid 5 of 2 threadblocks");
  CHECK(fault(edited("depid=\"0\" deps=\"1\"", "depid=\"0\" deps=\"9\"")) ==
        "10: deps 9 of the 3 steps of threadblock 0");
  CHECK(fault(edited("depid=\"0\" deps=\"1\"", "depid=\"1\" deps=\"1\"")) ==
        "10: waits for step 1 of threadblock 1, where neither it nor a later step has hasdep=1");
  CHECK(fault(edited("send=\"1\"", "send=\"-1\"")) == "5: 's' in a threadblock that sends to none");
  CHECK(fault(edited("recv=\"1\"", "recv=\"-1\"")) == "6: 'rrcs' in a threadblock that receives from none");
  CHECK(fault(edited("<gpu id=\"0\"", "<tb/><gpu id=\"0\"")) == "3: 'tb' in the wrong place");
  CHECK(fault(edited("<gpu id=\"0\"",
                     "<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>"
                     "<a><a><a><a><a><a><gpu id=\"0\"")) == "3: elements nested deeper than 32");
}

TEST_CASE("xml: hostile texts cost little memory") {
  const auto refused = [](const std::string& xml) {
    testing::reset_largest_allocation();
    CHECK_FALSE(read_xml(xml).ok());
    return testing::largest_allocation();
  };
  const std::size_t modest = std::size_t{1} << 20U;
  CHECK(refused(edited("ngpus=\"2\"", "ngpus=\"1000000000\"")) < modest);
  CHECK(refused(edited("s_chunks=\"1\"", "s_chunks=\"2147483647\"")) < modest);
  CHECK(refused(edited("nchunksperloop=\"2\"", "nchunksperloop=\"2147483647\"")) < modest);
  std::string deep;
  for (int k = 0; k < 1000000; ++k) deep += "<a>";
  CHECK(refused("<algo>" + deep) < modest);
  std::string attributes = "<algo";
  for (int k = 0; k < 100000; ++k) attributes += " a" + std::to_string(k) + "=\"\"";
  CHECK(refused(attributes + "/>") < modest);
  CHECK(refused("<algo name=\"" + std::string(10000000, 'x')) < modest);
  CHECK(refused("<" + std::string(10000000, 'x') + ">") < modest);
  CHECK(refused("<!--" + std::string(10000000, '-')) < modest);
}

TEST_CASE("xml: random damage never crashes, and what is accepted can be written and read again") {
  testing::Random random(3);
  constexpr std::string_view kPieces[] = {"<",      ">",    "/>",  "\"",         " ",     "=",
                                          "-1",     "0",    "1",   "2147483648", "0x",    "&amp;",
                                          "&#x41;", "<!--", "-->", "<step/>",    "</tb>", "<gpu id=\"1\"",
                                          "nop",    "i"};
  int accepted = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string xml = write_xml(testing::random_coherent(random.below(50)), {.dialect = XmlDialect::rccl}).value();
    for (std::uint32_t edits = 1 + random.below(3); edits > 0 && !xml.empty(); --edits) {
      const std::size_t at = random.below(xml.size());
      switch (random.below(5)) {
        case 0:
          xml[at] = static_cast<char>(random.below(256));
          break;
        case 1:
          xml.erase(at, 1 + random.below(8));
          break;
        case 2:
          xml.insert(at, kPieces[random.below(std::size(kPieces))]);
          break;
        case 3:
          xml.resize(at + 1);
          break;
        default: {  // replace a digit by a digit
          const std::size_t digit = xml.find_first_of("0123456789", at);
          if (digit != std::string::npos) xml[digit] = static_cast<char>('0' + random.below(4));
        }
      }
    }
    testing::reset_largest_allocation();
    const auto file = read_xml(xml);
    REQUIRE(testing::largest_allocation() <= std::size_t{model::kMaxBufferChunks} * 16);
    if (!file.ok()) continue;
    ++accepted;
    const auto again = read_xml(write_xml(file.value().program, {.dialect = XmlDialect::rccl}).value());
    REQUIRE_MESSAGE(again.ok(), again.error().str());
    CHECK(again.value().program == file.value().program);
  }
  CHECK(accepted > 500);
}

TEST_CASE("forms: told apart by how they begin") {
  const auto read = [](const std::string& text) { return read_any(std::as_bytes(std::span(text)), "f"); };
  const ProgramFile from_xml = read("\n " + std::string(kSample)).value();
  const ProgramFile from_text = read("# a remark\n" + std::string(kSampleAsText)).value();
  CHECK(from_xml.program == from_text.program);
  CHECK(from_text.in_place == from_text.program.collective.in_place());
  CHECK(from_text.out_of_place != from_text.in_place);
  const auto neither = read("hello");
  REQUIRE_FALSE(neither.ok());
  CHECK(neither.error().code == ErrorCode::NotAProgram);
  CHECK(neither.error().message == "'f': the file does not begin like a program image");
  CHECK_FALSE(load_any("/nonexistent/file").ok());
}

TEST_CASE("forms: options can repeat the content of a file, not change it") {
  const std::string text(kSampleAsText);
  const auto read = [&](const XmlReadOptions& options) {
    return read_any(std::as_bytes(std::span(text)), "f", options);
  };
  const ProgramFile file = read({}).value();
  CHECK(read({{}, std::string(file.program.collective.name()), file.in_place}).ok());
  CHECK(read({{}, "", !file.in_place}).error().code == ErrorCode::BadArgument);
  CHECK(read({{}, "scatter", std::nullopt}).error().message == "'f' is for allreduce");
}

TEST_CASE("a name given by the caller stands for coll") {
  std::string xml(kSample);
  xml.replace(xml.find("allreduce"), 9, "custom");
  CHECK(read_xml(xml).error().code == ErrorCode::UnknownPurpose);
  CHECK(read_xml(xml, "f", {{}, "allreduce", {}}).value().program == read_xml(kSample).value().program);
  CHECK(read_xml(xml, "f", {{}, "allgater", {}}).error().code == ErrorCode::UnknownPurpose);
}

}  // namespace
}  // namespace gc3::ir
