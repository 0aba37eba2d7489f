// The fields of ObjectMeta that the operator reads or writes.
#pragma once

#include "controller/api/field.h"
#include "controller/api/metadata.h"

namespace tilewright::api {

template <typename Visitor>
void visit_fields(Visitor& visitor, Of<ObjectMeta> auto& metadata) {
  visitor(Field{"name"}, metadata.name);
  visitor(Field{"generateName"}, metadata.generate_name);
  visitor(Field{"namespace"}, metadata.namespace_name);
  visitor(Field{"uid"}, metadata.uid);
  visitor(Field{"resourceVersion"}, metadata.resource_version);
  visitor(Field{.name = "generation", .omit_zero = true}, metadata.generation);
  visitor(Field{"creationTimestamp"}, metadata.creation_timestamp);
  visitor(Field{"deletionTimestamp"}, metadata.deletion_timestamp);
  visitor(Field{"labels"}, metadata.labels);
  visitor(Field{"annotations"}, metadata.annotations);
  visitor(Field{"finalizers"}, metadata.finalizers);
  visitor(Field{.name = "ownerReferences", .max_items = 1}, metadata.owner_references);
  for (const char* name : {"managedFields", "selfLink", "deletionGracePeriodSeconds"}) {
    visitor.ignored(name);
  }
}

}  // namespace tilewright::api
