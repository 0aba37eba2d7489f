# The cluster's machine: a set of namespaces (PID, mount, network, UTS) that contains all programs.
# When its PID 1 dies, the kernel kills all other processes and removes mounts, links and packet
# filters. Only cgroups must be removed explicitly. On the host, the machine adds one link and its
# cgroups.
# shellcheck shell=bash

# The process of outer_record writes it before it creates anything, so that `down` can clean up
# after a killed start. inner_record names the machine's PID 1.
outer_record=$state/machine
inner_record=$state/machine-init

machine_number() { cut -d ' ' -f 3 "$outer_record"; }
machine_init() { cut -d ' ' -f 1 "$inner_record"; }
machine_is_running() {
  local record
  [ -e "$inner_record" ] && read -r -a record <"$inner_record" && is_running "${record[0]}" "${record[1]}"
}

# on_machine COMMAND...: runs a command inside the machine, which has the host's files except /var
# and /run. XDG_RUNTIME_DIR is unset because it names a directory in the host's /run, which runc
# would use.
on_machine() {
  nsenter --target "$(machine_init)" --mount --net --uts --pid -- env --unset=XDG_RUNTIME_DIR "$@" 9>&-
}

# 198.18.0.0/15 is reserved for network tests; each cluster uses a different subnet.
machine_address() { echo "198.18.$(machine_number).2"; }
host_address() { echo "198.18.$(machine_number).1"; }
link_name() { echo "tilewright$1"; }
free_number() { # one that no running cluster uses and no killed one left a cgroup of
  local number
  for number in {0..255}; do
    ! cgroup_exists "$number" || continue
    ip link show "$(link_name "$number")" >/dev/null 2>&1 && continue
    [ -z "$(ip -4 -o address show to "198.18.$number.0/24")" ] || continue
    echo "$number"
    return
  done
  die "every network of 198.18.0.0/16 is taken"
}

make_machine() {
  local number init
  number=$(free_number)
  # PID 1, which reaps orphans; the pods' sandboxes use the same program.
  cc -static -Os -o "$state/init" "$checkout/docker/pause.c"
  (
    exec 9>&- </dev/null >"$state/logs/machine.log" 2>&1
    trap '' INT # the script handles Ctrl-C and removes the machine
    self=$BASHPID # differs inside $(...)
    echo "$self $(start_time "$self") $number" >"$outer_record.staging"
    mv "$outer_record.staging" "$outer_record"
    exec setsid unshare --mount --net --uts --pid --fork --kill-child --mount-proc -- "$state/init"
  ) &
  await 60 "the machine's PID 1" find_init "$!"
  make_cgroups "$number"
  connect_network "$number"
  on_machine bash -euc "$(declare -f set_up_machine); set_up_machine \"\$@\"" - "$state" "$programs" "$node"
}

find_init() { # the child of process $1, after its exec
  local init
  init=$(pgrep -P "$1")
  [ "$(readlink "/proc/$init/exe")" = "$state/init" ] || return 1
  echo "$init $(start_time "$init")" >"$inner_record"
}

# Runs inside the machine. /var and /run are private, so that programs find their directories empty.
set_up_machine() {
  local state=$1 programs=$2 name=$3
  hostname "$name"
  mount --make-rshared /
  mount -t tmpfs -o mode=755 tmpfs "$state/run"
  mkdir "$state/run/tilewright" "$state/run/programs" "$state/run/lock"
  mount --bind "$programs" "$state/run/programs"
  mount --bind "$state" "$state/run/tilewright"
  mount --bind "$state/var" /var
  mount --rbind "$state/run" /run
  echo 1 >/proc/sys/net/ipv4/ip_forward
  echo 0 >/proc/sys/net/ipv4/icmp_ratelimit # refuses every DNS query at once
}

connect_network() {
  local link
  link=$(link_name "$1")
  ip link add "$link" type veth peer name eth0 netns "$(machine_init)"
  ip address add "$(host_address)/30" dev "$link"
  ip link set "$link" up
  on_machine ip link set lo up
  on_machine ip address add "$(machine_address)/30" dev eth0
  on_machine ip link set eth0 up
  # No default route: nothing leaves the machine. DNAT rewrites Service addresses on this route.
  on_machine ip route add "$service_range" via "$(host_address)"
  on_machine ip route add unreachable "$dns_service"
}

# The pods' cgroups are below one cgroup per hierarchy: one in cgroup v2, several in v1.
cgroup_roots() {
  local root
  if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    echo /sys/fs/cgroup
  else
    for root in /sys/fs/cgroup/*/; do
      [ ! -e "$root/cgroup.procs" ] || [ -L "${root%/}" ] || echo "${root%/}"
    done
  fi
}
cgroup_name() { echo "tilewright$1"; }
cgroup_exists() {
  local root
  while read -r root; do
    [ ! -d "$root/$(cgroup_name "$1")" ] || return 0
  done < <(cgroup_roots)
  return 1
}
make_cgroups() {
  local root group file
  while read -r root; do
    group=$root/$(cgroup_name "$1")
    mkdir -p "$group"
    for file in cpuset.cpus cpuset.mems; do # empty in a new v1 cgroup
      [ ! -e "$root/$file" ] || [ -e "$root/cgroup.controllers" ] || cat "$root/$file" >"$group/$file"
    done
    [ "$root" != /sys/fs/cgroup ] || enable_controllers "$root" "$group"
  done < <(cgroup_roots)
}
# A v2 cgroup has the controllers in its parent's subtree_control. systemd enables those that its
# units use and may disable unused ones; the kubelet requires all of these that the kernel has.
# Those in use by the machine's cgroup stay enabled.
enable_controllers() { # for the root $1 and its cgroup $2
  local group controller
  cp "$1/cgroup.subtree_control" "$state/etc/controllers"
  for group in "$1" "$2"; do
    for controller in cpu cpuset hugetlb memory pids; do
      ! grep -qw "$controller" "$1/cgroup.controllers" || echo "+$controller" >"$group/cgroup.subtree_control" ||
        die "cannot enable the controller $controller in the cgroup $group"
    done
  done
}
# Disables controllers that were not enabled before, including those of runc, except those in use.
disable_controllers() {
  local root=/sys/fs/cgroup controller
  [ -e "$state/etc/controllers" ] || return 0
  for controller in $(cat "$root/cgroup.subtree_control"); do
    grep -qw "$controller" "$state/etc/controllers" ||
      { echo "-$controller" >"$root/cgroup.subtree_control"; } 2>/dev/null || true
  done
}
remove_cgroups() { # succeeds when none is left
  local root group
  while read -r root; do
    group=$root/$(cgroup_name "$1")
    [ ! -d "$group" ] || find "$group" -depth -type d -exec rmdir {} + || return 1
  done < <(cgroup_roots)
}

no_process() { ! is_running "$@"; }
no_link() { ! ip link show "$1" 2>/dev/null; }

delete_machine() {
  local outer=() inner=()
  [ ! -e "$outer_record" ] || read -r -a outer <"$outer_record" || true
  [ ! -e "$inner_record" ] || read -r -a inner <"$inner_record" || true
  # The start died before it wrote inner_record: PID 1 is the only child of the outer process.
  if [ ${#inner[@]} -lt 2 ] && is_running "${outer[@]:0:2}" && inner=("$(pgrep -P "${outer[0]}")"); then
    inner+=("$(start_time "${inner[0]}")")
  fi
  if is_running "${outer[@]:0:2}"; then kill -KILL "${outer[0]}"; fi # unshare --kill-child
  if is_running "${inner[@]}"; then kill -KILL "${inner[0]}"; fi
  rm -f "$state"/pids/*
  [ ${#inner[@]} -lt 2 ] || await 60 "the exit of all processes of the cluster" no_process "${inner[@]}"
  if [ ${#outer[@]} -eq 3 ]; then
    # The kernel deletes the link only after the last half-closed connection.
    ip link delete "$(link_name "${outer[2]}")" 2>/dev/null || no_link "$(link_name "${outer[2]}")"
    await 60 "the removal of the cluster's cgroups" remove_cgroups "${outer[2]}"
    disable_controllers
  fi
  rm -f "$inner_record" "$outer_record" "$outer_record.staging"
}
