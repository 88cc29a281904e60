#include "gc3/transport/ucx.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "gc3/base/copy_bytes.h"
#include "gc3/base/errors/common.h"
#include "gc3/base/errors/processes.h"
#include "gc3/base/knobs.h"
#include "gc3/base/sha256.h"
#include "gc3/transport/offer.h"

namespace gc3::transport {
namespace {

using Clock = std::chrono::steady_clock;

constexpr unsigned kMessages = 1;         // the id of our active messages
constexpr std::size_t kLeastHeld = 4096;  // shorter messages are copied into their slot
constexpr std::size_t kAlignment = 64;    // of held ones
constexpr auto kFarewell = std::chrono::seconds(1);
constexpr std::size_t kMostTransports = 16;

}  // namespace

struct Ucx::Header {
  static constexpr std::uint32_t kData = 1;
  static constexpr std::uint32_t kCredit = 2;

  std::uint64_t word;
  std::uint32_t kind;
  std::uint32_t from;   // the sender's rank
  std::uint64_t flag;   // of data
  LinkId link;          // of data
  LinkId credited;      // credit for this connection
  std::uint64_t taken;  // 0: none
};

Result<std::unique_ptr<Ucx>> Ucx::create(std::shared_ptr<const UcxLibrary> library, std::uint32_t rank,
                                         const std::string& devices, std::string secret) {
  std::unique_ptr<Ucx> made(new Ucx(std::move(library), rank, std::move(secret)));
  const ucx::Table& call = made->call();
  const auto check = [&](ucx::Status status, const char* what) -> gc3::Status {
    if (status == ucx::kOk) return {};
    return Diagnostic(ErrorCode::SystemRefused, "UCX " + made->library_->version() + " (" + made->library_->path() +
                                                    ") cannot " + what + ": " + call.describe(status));
  };
  ucx::Config config = nullptr;
  GC3_CHECK(check(call.read_config(nullptr, nullptr, &config), "read its settings"));
  // No handlers of signals, and no hooks in malloc. A setting that a version does not have is no loss.
  call.modify_config(config, "HANDLE_ERRORS", "none");
  call.modify_config(config, "MEM_EVENTS", "n");
  call.modify_config(config, "TCP_KEEPIDLE", "1s");
  call.modify_config(config, "TCP_KEEPINTVL", "1s");
  if (!devices.empty()) call.modify_config(config, "NET_DEVICES", devices.c_str());
  ucx::ContextParams context;
  context.mask = ucx::ContextParams::kFeatures;
  context.features = ucx::ContextParams::kActiveMessages | ucx::ContextParams::kWakeUp;
  const ucx::Status begun = call.init(1, 15, &context, config, &made->context_);
  call.release_config(config);
  GC3_CHECK(check(begun, "start"));
  ucx::WorkerParams worker;
  worker.mask = ucx::WorkerParams::kThreadMode | ucx::WorkerParams::kAlignment;
  worker.thread_mode = ucx::WorkerParams::kSerialized;
  worker.alignment = kAlignment;
  GC3_CHECK(check(call.create_worker(made->context_, &worker, &made->worker_), "create a worker"));
  ucx::HandlerParams handler;
  handler.mask = ucx::HandlerParams::kAll;
  handler.id = kMessages;
  handler.flags = ucx::HandlerParams::kWhole | ucx::HandlerParams::kPersistent;
  handler.callback = on_message;
  handler.argument = made.get();
  GC3_CHECK(check(call.set_handler(made->worker_, &handler), "receive messages"));
  GC3_CHECK(check(call.get_descriptor(made->worker_, &made->descriptor_), "wake this process"));
  void* address = nullptr;
  std::size_t bytes = 0;
  GC3_CHECK(check(call.get_address(made->worker_, &address, &bytes), "tell its address"));
  made->address_.assign(static_cast<const char*>(address), bytes);
  call.release_address(made->worker_, address);
  return made;
}

std::string Ucx::devices_of(const std::string& interface) {
  std::string devices = interface;
  std::error_code missing;  // most interfaces have none
  const std::filesystem::path rdma = std::filesystem::path("/sys/class/net") / interface / "device/infiniband";
  for (const auto& entry : std::filesystem::directory_iterator(rdma, missing)) {
    devices.append(",").append(entry.path().filename().string()).append(":1");
  }
  return devices;
}

Ucx::~Ucx() {
  close_endpoints(abandoned_);
  for (const auto& inlet : links_->inlets()) {
    for (void*& held : inlet->held) {
      if (held != nullptr) give_back(std::exchange(held, nullptr));
    }
  }
  if (worker_ != nullptr) call().destroy_worker(worker_);
  if (context_ != nullptr) call().cleanup(context_);
}

std::uint64_t Ucx::word_of(std::uint32_t from, std::uint32_t to) const {
  std::string pair = "ucx ";
  pair += std::to_string(from) + " " + std::to_string(to);
  const Digest digest = hmac_sha256(secret_, pair);
  std::uint64_t word = 0;
  std::memcpy(&word, digest.data(), sizeof word);
  return word;
}

Status Ucx::connect(std::uint32_t peer, std::string_view address) {
  if (connected(peer)) return {};
  auto made = std::make_unique<Peer>();
  made->owner = this;
  made->rank = peer;
  made->address = address;
  made->there = word_of(rank_, peer);
  made->here = word_of(peer, rank_);
  ucx::EndpointParams params;
  params.mask = ucx::EndpointParams::kAddress | ucx::EndpointParams::kErrorMode | ucx::EndpointParams::kErrorHandler;
  params.address = made->address.data();
  params.error_mode = ucx::EndpointParams::kPeerErrors;
  params.error = on_error;
  params.error_argument = made.get();
  const ucx::Status status = call().create_endpoint(worker_, &params, &made->endpoint);
  if (status != ucx::kOk) {
    return Diagnostic(ErrorCode::RankLost, "rank " + std::to_string(peer) + ": UCX " + library_->version() +
                                               " cannot connect: " + call().describe(status));
  }
  peers_[peer] = std::move(made);
  return {};
}

void Ucx::post(Peer& peer, Header header, const void* data, std::size_t bytes) {
  if (abandoned_ || peer.endpoint == nullptr) return;
  header.word = peer.there;
  header.from = rank_;
  ucx::RequestParams params;
  params.mask = ucx::RequestParams::kCallback | ucx::RequestParams::kUserData | ucx::RequestParams::kFlags;
  params.flags = ucx::RequestParams::kCopyHeader;
  params.callback.sent = on_sent;
  params.user_data = &peer;
  void* const request = call().send(peer.endpoint, kMessages, &header, sizeof header, data, bytes, &params);
  if (ucx::is_request(request)) {
    ++requests_;
  } else if (request != nullptr) {
    fail(peer.rank, Failure::Kind::lost, call().describe(ucx::status_of(request)));
  }
}

void Ucx::send(Outlet& to, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes) {
  ++to.sent;
  Peer& peer = *peers_.at(to.peer);
  Header header{0, Header::kData, 0, flag, to.link, 0, 0};
  // Credit that is owed to the same rank costs nothing beside a message.
  for (Inlet* const inlet : peer.inlets) {
    if (inlet->taken == inlet->credited) continue;
    header.credited = inlet->link;
    header.taken = inlet->credited = inlet->taken;
    break;
  }
  post(peer, header, from, bytes);
}

void Ucx::credit(Inlet& from) {
  if (in_progress_) return owing_.push_back(&from);  // nothing is sent from within UCX's call of take()
  from.credited = from.taken;
  post(*peers_.at(from.peer), {0, Header::kCredit, 0, 0, 0, from.link, from.taken}, nullptr, 0);
}

bool Ucx::progress() {
  if (abandoned_) return false;
  moved_ = false;
  in_progress_ = true;
  call().progress(worker_);
  in_progress_ = false;
  for (Inlet* const inlet : std::exchange(owing_, {})) {
    if (inlet->owes_credit()) credit(*inlet);
  }
  return moved_;
}

ucx::Status Ucx::on_message(void* argument, const void* header, std::size_t header_bytes, void* data, std::size_t bytes,
                            const ucx::HandlerParams::Received* how) {
  Ucx& self = *static_cast<Ucx*>(argument);
  if (header_bytes != sizeof(Header) || self.abandoned_) return ucx::kOk;
  Header said;
  std::memcpy(&said, header, sizeof said);
  return self.take(said, data, bytes, *how);
}

ucx::Status Ucx::take(const Header& header, void* data, std::size_t bytes, const ucx::HandlerParams::Received& how) {
  const auto found = peers_.find(header.from);
  if (found == peers_.end() || header.word != found->second->here) return ucx::kOk;  // from a stranger
  Peer& peer = *found->second;
  moved_ = true;
  if (header.taken != 0) {
    const gc3::Status valid = links_->credit(peer.rank, header.credited, header.taken);
    if (!valid.ok()) fail(peer.rank, Failure::Kind::hostile, valid.error().message);
  }
  if (header.kind != Header::kData) return ucx::kOk;
  const Result<Inlet*> begun = links_->begin(peer.rank, header.link, header.flag, bytes);
  if (!begun.ok()) {
    fail(peer.rank, Failure::Kind::hostile, begun.error().message);
    return ucx::kOk;
  }
  Inlet& inlet = *begun.value();
  if (inlet.arrived == 0) peer.inlets.push_back(&inlet);
  std::uint8_t* const at = Links::place_of(inlet, header.flag, bytes);
  if ((how.attributes & ucx::HandlerParams::Received::kRendezvous) != 0) {
    auto arriving = std::make_unique<Arriving>(Arriving{this, &inlet, header.flag, at});
    ucx::RequestParams params;
    params.mask = ucx::RequestParams::kCallback | ucx::RequestParams::kUserData;
    params.callback.received = on_received;
    params.user_data = arriving.get();
    void* const request = call().receive(worker_, data, at, bytes, &params);
    if (ucx::is_request(request)) {
      ++requests_;
      static_cast<void>(arriving.release());
      return ucx::kInProgress;
    }
    if (request == nullptr) {
      arrive(inlet, header.flag, at);
    } else {
      fail(peer.rank, Failure::Kind::lost, call().describe(ucx::status_of(request)));
    }
    return ucx::kOk;
  }
  if ((how.attributes & ucx::HandlerParams::Received::kData) != 0 && bytes >= kLeastHeld) {
    inlet.held[Links::number_of(header.flag) % inlet.slots] = data;
    arrive(inlet, header.flag, data);
    return ucx::kInProgress;
  }
  copy_bytes(at, data, bytes);
  arrive(inlet, header.flag, at);
  return ucx::kOk;
}

void Ucx::on_sent(void* request, ucx::Status status, void* peer) {
  Peer& to = *static_cast<Peer*>(peer);
  --to.owner->requests_;
  to.owner->moved_ = true;
  if (status != ucx::kOk) to.owner->fail(to.rank, Failure::Kind::lost, to.owner->call().describe(status));
  to.owner->call().free_request(request);
}

void Ucx::on_received(void* request, ucx::Status status, std::size_t, void* arriving) {
  const std::unique_ptr<Arriving> done(static_cast<Arriving*>(arriving));
  Ucx& self = *done->owner;
  --self.requests_;
  self.moved_ = true;
  if (status == ucx::kOk) {
    self.arrive(*done->inlet, done->flag, done->at);
  } else {
    self.fail(done->inlet->peer, Failure::Kind::lost, self.call().describe(status));
  }
  self.call().free_request(request);
}

void Ucx::on_error(void* peer, ucx::Endpoint, ucx::Status status) {
  Peer& from = *static_cast<Peer*>(peer);
  from.owner->fail(from.rank, Failure::Kind::left, from.owner->call().describe(status));
}

// Ends what is under way, within a bound. Nothing reads the caller's memory afterwards.
void Ucx::close_endpoints(bool force) {
  std::vector<void*> closing;
  for (auto& [rank, peer] : peers_) {
    if (peer->endpoint == nullptr) continue;
    ucx::RequestParams params;
    params.mask = ucx::RequestParams::kFlags;
    params.flags = force ? ucx::RequestParams::kForce : 0;
    void* const request = call().close_endpoint(std::exchange(peer->endpoint, nullptr), &params);
    if (ucx::is_request(request)) closing.push_back(request);
  }
  const auto until = Clock::now() + kFarewell;
  while ((!closing.empty() || requests_ != 0) && Clock::now() < until) {
    call().progress(worker_);
    std::erase_if(closing, [&](void* request) {
      const bool done = call().check_request(request) != ucx::kInProgress;
      if (done) call().free_request(request);
      return done;
    });
  }
  for (void* const request : closing) call().free_request(request);
}

void Ucx::abandon() {
  abandoned_ = true;
  close_endpoints(true);
}

// "tcp/eth0", which carries the messages of a connection.
std::string Ucx::transports_of(const Peer& peer) const {
  std::array<ucx::EndpointAttributes::Transport, kMostTransports> used{};
  ucx::EndpointAttributes attributes;
  attributes.mask = ucx::EndpointAttributes::kTransports;
  attributes.transports = used.data();
  attributes.count = used.size();
  if (peer.endpoint == nullptr || call().query_endpoint(peer.endpoint, &attributes) != ucx::kOk) return "";
  std::string found;
  for (unsigned i = 0; i < attributes.count && i < used.size(); ++i) {
    const std::string one = std::string(used[i].name).append("/").append(used[i].device);
    if (found.find(one) == std::string::npos) found += (found.empty() ? "" : ", ") + one;
  }
  return found;
}

std::string Ucx::describe() const {
  std::string text = "ucx " + library_->version() + " of " + library_->path();
  // Hosts may be reached in different ways.
  std::map<std::string, std::string> ranks_of;
  for (const auto& [rank, peer] : peers_) {
    const std::string found = transports_of(*peer);
    std::string* const ranks = found.empty() ? nullptr : &ranks_of[found];
    if (ranks != nullptr) ranks->append(ranks->empty() ? "" : ", ").append(std::to_string(rank));
  }
  bool infiniband = true;
  for (const auto& [found, ranks] : ranks_of) {
    text += (found == ranks_of.begin()->first ? ": " : "; ") + found;
    if (ranks_of.size() > 1) text.append(" to rank ").append(ranks);
    infiniband &= std::ranges::any_of(std::array{"rc", "dc", "ud"}, [&found = found](const char* name) {
      return found.starts_with(name) || found.find(std::string(", ") + name) != std::string::npos;
    });
  }
  if (infiniband) return text;
  std::error_code ignored;
  const bool device = !std::filesystem::is_empty("/sys/class/infiniband", ignored) && !ignored;
  if (!device) return text + "; no InfiniBand: this host has no device";
  const std::filesystem::path module = std::filesystem::path(library_->path()).parent_path() / "ucx" / "libuct_ib.so.0";
  return text + "; no InfiniBand: " +
         (std::filesystem::exists(module, ignored) ? "UCX does not use the device"
                                                   : "this library was built without it");
}

Result<Offer> offer_ucx(const std::optional<core::Endpoint>& first) {
  GC3_ASSIGN(const Knobs knobs, read_knobs());
  std::string devices;
  if (!knobs.network.empty() && process_environment()("UCX_NET_DEVICES") == nullptr) {
    GC3_ASSIGN(const core::Interface interface, core::choose_interface(knobs.network, first));
    devices = Ucx::devices_of(interface.name);
  }
  const bool has_secret = !knobs.secret.empty() || !knobs.secret_file.empty();
  if (has_secret && knobs.ucx.empty()) {
    return Offer{{},
                 "there is a secret, which UCX's connections do not prove; GC3_UCX=libucp.so.0 uses UCX nevertheless"};
  }
  const std::vector<std::string> places = UcxLibrary::places(knobs.ucx);
  if (places.empty()) return Offer{};
  auto opened = UcxLibrary::open(places);
  if (!opened.ok()) return Offer{{}, opened.error().message};
  return Offer{[library = std::move(opened).value(), devices](
                   std::uint32_t rank, const std::string&, std::string secret) -> Result<std::unique_ptr<Transport>> {
    GC3_ASSIGN(std::unique_ptr<Transport> made, Ucx::create(library, rank, devices, std::move(secret)));
    return made;
  }};
}

}  // namespace gc3::transport
