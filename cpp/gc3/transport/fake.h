// For tests: a transport that delays what another one carries, so that messages of different connections overtake each
// other, and that can lose a peer. Its decisions depend on the seed alone; time is counted in calls of progress().
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gc3/transport/transport.h"

namespace gc3::transport {

class Fake final : public Transport {
 public:
  struct Options {
    std::uint64_t seed = 0;
    std::uint32_t longest = 8;  // calls of progress() that a message or a credit is delayed
    // After so many messages the next one's receiver is lost: nothing is sent to it any more.
    std::optional<std::uint64_t> loses_after = {};
    bool* abandoned = nullptr;  // is set by abandon()
    std::string address = {};   // is told in place of its own
  };
  Fake(std::unique_ptr<Transport> inner, const Options& options)
      : Transport(inner->links()), inner_(std::move(inner)), options_(options), random_(options.seed) {}

  std::string address() const override { return options_.address.empty() ? inner_->address() : options_.address; }
  Status connect(std::uint32_t peer, std::string_view address) override { return inner_->connect(peer, address); }
  bool connected(std::uint32_t peer) const override { return inner_->connected(peer); }
  std::string why_not(std::uint32_t peer) const override { return inner_->why_not(peer); }
  void send(Outlet& to, std::uint64_t flag, const std::uint8_t* from, std::uint64_t bytes) override {
    if (options_.loses_after && sent_++ == *options_.loses_after) {
      lost_ = to.peer;
      fail(to.peer, Failure::Kind::lost, "the test has lost it");
    }
    delay({to.link, false}, {0, to.peer, &to, nullptr, flag, {from, from + bytes}});
  }
  void credit(Inlet& from) override { delay({from.link, true}, {0, from.peer, nullptr, &from, 0, {}}); }
  bool progress() override {
    ++now_;
    bool moved = false;
    for (auto& [line, delayed] : waiting_) {
      for (; !delayed.empty() && delayed.front().due <= now_; delayed.pop_front()) moved |= pass(delayed.front());
    }
    moved |= inner_->progress();
    if (inner_->idle()) sending_.clear();
    for (const auto& [peer, failure] : inner_->failures()) fail(peer, failure.kind, failure.reason);
    return moved;
  }
  bool idle() const override {
    for (const auto& [line, delayed] : waiting_) {
      if (!delayed.empty()) return false;
    }
    return inner_->idle();
  }
  int wake_descriptor() const override { return inner_->wake_descriptor(); }
  bool arm() override { return idle(); }  // time passes only in progress()
  void abandon() override {
    if (options_.abandoned != nullptr) *options_.abandoned = true;
    waiting_.clear();
    inner_->abandon();
  }
  std::string describe() const override { return "fake, over " + inner_->describe(); }

 private:
  using Line = std::pair<LinkId, bool>;  // messages or credits of a connection, which stay in order
  struct Delayed {
    std::uint64_t due;
    std::uint32_t peer;
    Outlet* outlet;  // null: credit
    Inlet* inlet;
    std::uint64_t flag;
    std::vector<std::uint8_t> data;
  };

  void delay(const Line& line, Delayed event) {
    std::uint64_t& last = last_[line];
    last = std::max(last, now_ + random_() % (options_.longest + 1));
    event.due = last;
    waiting_[line].push_back(std::move(event));
  }
  bool pass(Delayed& event) {
    if (lost_ == event.peer) return false;
    if (event.outlet == nullptr) {
      inner_->credit(*event.inlet);
      return true;
    }
    sending_.push_back(std::move(event.data));
    inner_->send(*event.outlet, event.flag, sending_.back().data(), sending_.back().size());
    return true;
  }

  std::unique_ptr<Transport> inner_;
  Options options_;
  std::mt19937_64 random_;
  std::uint64_t now_ = 0;
  std::uint64_t sent_ = 0;
  std::optional<std::uint32_t> lost_;
  std::map<Line, std::deque<Delayed>> waiting_;
  std::map<Line, std::uint64_t> last_;
  std::list<std::vector<std::uint8_t>> sending_;  // until they have left
};

}  // namespace gc3::transport
