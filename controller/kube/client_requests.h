// How client_reads.cpp and client_writes.cpp put requests together.
#pragma once

#include <string>

#include "controller/kube/client.h"

namespace tilewright::kube {

inline ApiRequest make_request(const char* method, const char* verb, const ResourceType& type,
                               const std::string& namespace_name, const std::string& name,
                               const std::string& subresource, const Query& query) {
  ApiRequest request;
  request.verb = verb;
  request.resource = subresource.empty() ? type.plural : type.plural + "/" + subresource;
  request.operation = std::string(verb) + " " + described(type, namespace_name, name) +
                      (subresource.empty() ? "" : "/" + subresource);
  request.http.method = method;
  request.http.target = path_of(type, namespace_name, name, subresource) + query_text(query);
  return request;
}

}  // namespace tilewright::kube
