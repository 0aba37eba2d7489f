// get, list and watch.
#include <algorithm>
#include <utility>

#include "controller/api/json_members.h"
#include "controller/kube/client_requests.h"

namespace tilewright::kube {
namespace {

Query selecting(const Selection& selection) {
  Query query;
  if (!selection.label_selector.empty()) {
    query.emplace_back("labelSelector", selection.label_selector);
  }
  if (!selection.field_selector.empty()) {
    query.emplace_back("fieldSelector", selection.field_selector);
  }
  return query;
}

}  // namespace

ApiResult<Json> Client::get(const ResourceType& type, const std::string& namespace_name,
                            const std::string& name, const net::Wait& wait) {
  return send(make_request("GET", "get", type, namespace_name, name, "", {}), wait);
}

ApiResult<std::string> Client::get_text(const std::string& target, const net::Wait& wait) {
  ApiRequest request;
  request.verb = "get";
  request.resource = target.substr(0, target.find('?'));
  request.operation = "get " + request.resource;
  request.http.method = "GET";
  request.http.target = target;
  return sender_.send(request, wait);
}

ApiResult<std::string> Client::list(const ResourceType& type, const Selection& selection,
                                    const ListOptions& options, const ListSink& sink,
                                    const net::Wait& wait) {
  int page_limit = options.page_limit;
  int starts = 0;
  std::string token;
  while (true) {
    if (token.empty()) {
      ++starts;
      if (sink.begin) sink.begin();
    }
    Query query = selecting(selection);
    if (page_limit > 0) query.emplace_back("limit", std::to_string(page_limit));
    if (!token.empty()) {
      query.emplace_back("continue", token);
    } else if (!options.resource_version.empty()) {
      query.emplace_back("resourceVersion", options.resource_version);
    }
    const ApiRequest request =
        make_request("GET", "list", type, selection.namespace_name, "", "", query);
    auto page = send_list(request, selection.wanted, sink.item, wait);
    if (page.is(Problem::kGone) && !token.empty()) {
      // The pages came too slowly for the server's history. Once more, then in one piece.
      token.clear();
      if (starts > 1) page_limit = 0;
      continue;
    }
    if (!page) return page.error();
    const auto items = page->find("items");
    if (items == page->end() || !(items->is_array() || items->is_null())) {
      ApiError error;
      error.problem = Problem::kProtocol;
      error.message = "the answer is no list";
      error.operation = request.operation;
      return error;
    }
    token = api::metadata_text(*page, "continue");
    if (token.empty()) return api::metadata_text(*page, "resourceVersion");
  }
}

ApiResult<std::vector<Json>> Client::list_all(const ResourceType& type, const Selection& selection,
                                              const net::Wait& wait) {
  std::vector<Json> items;
  const ListSink sink{[&items] { items.clear(); },
                      [&items](Json&& item) { items.push_back(std::move(item)); }};
  const auto listed = list(type, selection, {}, sink, wait);
  if (!listed) return listed.error();
  return items;
}

ApiResult<std::unique_ptr<WatchStream>> Client::watch(const ResourceType& type,
                                                      const Selection& selection,
                                                      const WatchOptions& options,
                                                      const net::Wait& wait) {
  const auto seconds = std::chrono::ceil<std::chrono::seconds>(options.server_timeout);
  Query query = selecting(selection);
  query.emplace_back("watch", "1");
  query.emplace_back("allowWatchBookmarks", "true");
  query.emplace_back("resourceVersion", options.resource_version);
  query.emplace_back("timeoutSeconds", std::to_string(std::max<std::int64_t>(1, seconds.count())));
  ApiRequest request = make_request("GET", "watch", type, selection.namespace_name, "", "", query);
  request.http.max_answer_bytes = UINT64_MAX;  // bounded event by event
  auto exchange = sender_.open(request, wait);
  if (!exchange) return exchange.error();
  WatchBounds bounds;
  bounds.silence = options.silence;
  bounds.total = options.server_timeout + std::chrono::seconds(30);
  bounds.max_event_bytes = options.max_event_bytes;
  return std::make_unique<WatchStream>(std::move(*exchange), bounds, request, selection.wanted);
}

}  // namespace tilewright::kube
