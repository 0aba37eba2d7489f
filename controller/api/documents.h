// The objects of a manifest file.
#pragma once

#include <string_view>
#include <vector>

#include "common/json/document.h"

namespace tilewright::api {

// The documents of a stream, with the items of each List (`kubectl get -o yaml`) in its place. Lines
// are those of the stream.
std::vector<Document> read_objects(std::string_view text);

}  // namespace tilewright::api
