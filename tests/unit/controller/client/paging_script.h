// A script for ScriptedServer that lists objects in pages as the API server does. Watches stay open
// without events.
#pragma once

#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/unit/controller/client/client_fixtures.h"

namespace tilewright::kube {

// The value of a query parameter; -1 if there is none.
inline int number_in_query(std::string_view target, std::string_view name) {
  for (const char before : {'?', '&'}) {
    const std::size_t found = target.find(before + std::string(name) + "=");
    if (found == std::string_view::npos) continue;
    const std::string_view text = target.substr(found + name.size() + 2);
    int number = -1;
    std::from_chars(text.data(), text.data() + text.size(), number);
    return number;
  }
  return -1;
}

// A page has as many objects as the client requests, whatever their size. A continue token is the
// index of the next object.
inline ScriptedServer::Script paging_script(std::vector<std::string> objects) {
  return [objects = std::move(objects)](ScriptedConnection& connection,
                                        const ScriptedRequest& request) {
    if (request.target.find("watch=1") != std::string::npos) {
      connection.begin_chunks();
      return connection.await_close();
    }
    const int all = static_cast<int>(objects.size());
    const int limit = number_in_query(request.target, "limit");
    const int first = std::max(0, number_in_query(request.target, "continue"));
    const int end = limit > 0 ? std::min(first + limit, all) : all;
    std::string items;
    for (int i = first; i < end; ++i) {
      if (i > first) items += ',';
      items += objects[static_cast<std::size_t>(i)];
    }
    connection.answer(200, list_text("10", items, end < all ? std::to_string(end) : ""));
  };
}

}  // namespace tilewright::kube
