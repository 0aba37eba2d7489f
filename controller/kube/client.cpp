// What reads and writes share: one request, one JSON object.
#include "controller/kube/client.h"

#include <utility>

namespace tilewright::kube {
namespace {

ApiResult<Json> as_object(Json&& tree, const ApiRequest& request) {
  if (tree.is_object()) return std::move(tree);
  ApiError error;
  error.problem = Problem::kProtocol;
  error.message = "the answer is no JSON object";
  error.operation = request.operation;
  error.maybe_applied = request.guard != nullptr;
  return error;
}

}  // namespace

Result<std::unique_ptr<Client>> Client::make(const ClusterConfig& config, SenderOptions options) {
  auto transport = Transport::make(config);
  if (!transport) return transport.error();
  return std::unique_ptr<Client>(
      new Client(std::move(transport).value(), config.credentials, std::move(options)));
}

Client::Client(std::unique_ptr<Transport> transport, std::shared_ptr<Credentials> credentials,
               SenderOptions options)
    : sender_(std::move(transport), std::move(credentials), std::move(options)) {}

ApiResult<Json> Client::send(const ApiRequest& request, const net::Wait& wait) {
  const auto body = sender_.send(request, wait);
  if (!body) return body.error();
  return as_object(parse_object(*body), request);
}

ApiResult<Json> Client::send_list(const ApiRequest& request, Wanted wanted,
                                  const std::function<void(Json&&)>& item, const net::Wait& wait) {
  const auto body = sender_.send(request, wait);
  if (!body) return body.error();
  return as_object(parse_list(*body, item, wanted), request);
}

}  // namespace tilewright::kube
