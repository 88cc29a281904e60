// Messages of one sender that have arrived, or are offered, and that no receive has asked for yet.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <utility>

#include "gc3/runtime/p2p/pipe.h"
#include "gc3/runtime/p2p/request.h"

namespace gc3::p2p {

struct Held {
  MessageHead head;
  std::uint64_t order = 0;  // among those of all senders
  bool offered = false;
  std::uint64_t arrived = 0;  // bytes
  Request* own = nullptr;     // the send of a message of a rank to itself
  std::unique_ptr<std::uint8_t[]> data;
};

class HeldMessages {
 public:
  Held& push(Held message) { return by_tag_[message.head.tag].emplace_back(std::move(message)); }
  bool empty() const { return by_tag_.empty(); }
  // The one that came first, of those with a tag or kAnyTag.
  Held* first(std::int32_t tag) {
    if (tag != kAnyTag) {
      const auto found = by_tag_.find(tag);
      return found == by_tag_.end() ? nullptr : &found->second.front();
    }
    Held* earliest = nullptr;
    for (auto& [_, queue] : by_tag_) {
      if (earliest == nullptr || queue.front().order < earliest->order) earliest = &queue.front();
    }
    return earliest;
  }
  // Takes out the first one with a tag.
  void pop(std::int32_t tag) {
    const auto found = by_tag_.find(tag);
    found->second.pop_front();
    if (found->second.empty()) by_tag_.erase(found);
  }
  template <class Predicate>
  std::size_t erase_if(Predicate predicate) {
    std::size_t erased = 0;
    for (auto& [_, queue] : by_tag_) erased += std::erase_if(queue, predicate);
    std::erase_if(by_tag_, [](const auto& entry) { return entry.second.empty(); });
    return erased;
  }
  // Queues by tag, none of them empty.
  const std::map<std::int32_t, std::list<Held>>& by_tag() const { return by_tag_; }

 private:
  std::map<std::int32_t, std::list<Held>> by_tag_;
};

}  // namespace gc3::p2p
