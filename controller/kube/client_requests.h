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

// A text member of metadata; empty where there is none.
inline std::string metadata_text(const Json& object, const char* name) {
  const auto metadata = object.find("metadata");
  if (metadata == object.end() || !metadata->is_object()) return "";
  const auto found = metadata->find(name);
  return found != metadata->end() && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace tilewright::kube
