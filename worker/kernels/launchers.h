// Launchers: the kernels of ops.h except linear layers, written once over the tables of
// single-threaded kernels. They cut the work into rows, columns, ids or heads, hand it to the
// threads, and sum over tokens by the shard tree.
#pragma once

#include "common/base/check.h"
#include "worker/kernels/kernel_table.h"

namespace tilewright::kernels {

inline void check_width(std::int64_t H) {
  TW_CHECK(H > 0 && H <= kMaxHidden, "row width must be between 1 and {}, found {}", kMaxHidden, H);
}

// One fill function per launcher file. Each binds its part of `ops` to `table`.
template <typename Activation>
void fill_row_launchers(Ops<Activation>& ops, const KernelTable<Activation>& table);
template <typename Activation>
void fill_attention_launchers(Ops<Activation>& ops, const KernelTable<Activation>& table);
template <typename Activation>
void fill_shard_launchers(Ops<Activation>& ops, const KernelTable<Activation>& table);
void fill_parameter_launchers(ParameterOps& ops, const ParameterKernelTable& table);

}  // namespace tilewright::kernels
