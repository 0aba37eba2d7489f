// The objects of a manifest file.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "common/json/document.h"

namespace tilewright::api {

// The documents of a stream, with the items of each List (`kubectl get -o yaml`) in its place.
// Lines are those of the stream.
std::vector<Document> read_objects(std::string_view text);

// Of an object whose kind is not that of a job: that the kind is misspelt or, if no other object is
// in the file, that there is no job. nullopt: the object is a job, names no kind, or is one that a
// file may hold beside jobs.
std::optional<FieldError> kind_error(const Document& object, bool alone);

}  // namespace tilewright::api
