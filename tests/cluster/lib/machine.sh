# The cluster's machine: a set of namespaces (processes, mounts, network, host name) that holds everything that
# runs. When its first process dies the kernel ends all others and takes mounts, links and packet filters with
# them; only control groups are left to remove. Nothing of the host is changed but one link, which goes with it.
# shellcheck shell=bash

# The first record is written by the very process it names before that makes anything, so that even a start that
# was killed leaves a trace; the second names the first process inside.
outer_record=$state/machine
inner_record=$state/machine-init

machine_number() { cut -d ' ' -f 3 "$outer_record"; }
machine_init() { cut -d ' ' -f 1 "$inner_record"; }
machine_lives() {
  local record
  [ -e "$inner_record" ] && read -r -a record <"$inner_record" && lives "${record[0]}" "${record[1]}"
}

# on_machine COMMAND...: runs it inside; it has the host's files but for /var and /run, so a folder that the user's
# session has in /run is not there (runc would write to it).
on_machine() {
  nsenter --target "$(machine_init)" --mount --net --uts --pid -- env --unset=XDG_RUNTIME_DIR "$@" 9>&-
}

# 198.18.0.0/15 is set aside for tests of networks; several clusters take different numbers of it.
machine_address() { echo "198.18.$(machine_number).2"; }
host_address() { echo "198.18.$(machine_number).1"; }
link_name() { echo "tilewright$1"; }
free_number() {
  local number
  for number in {0..255}; do
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
  # As the first process it reaps what loses its parent; a pod's sandbox has the same one.
  cc -static -Os -o "$state/init" "$checkout/docker/pause.c"
  (
    exec 9>&- </dev/null >"$state/logs/machine.log" 2>&1
    trap '' INT # Ctrl-C is the script's, which takes the machine down
    self=$BASHPID # in $(...) it is another
    echo "$self $(start_time "$self") $number" >"$outer_record.aside"
    mv "$outer_record.aside" "$outer_record"
    exec setsid unshare --mount --net --uts --pid --fork --kill-child --mount-proc -- "$state/init"
  ) &
  await 10 "the machine's first process" find_init "$!"
  make_cgroups "$number"
  join_networks "$number"
  on_machine bash -euc "$(declare -f lay_out_machine); lay_out_machine \"\$@\"" - "$state" "$programs" "$node"
}

find_init() { # the child of process $1, once it is the program that it shall be
  local init
  init=$(pgrep -P "$1")
  [ "$(readlink "/proc/$init/exe")" = "$state/init" ] || return 1
  echo "$init $(start_time "$init")" >"$inner_record"
}

# Runs inside. /var and /run are the machine's own, so that every program finds its usual places empty.
lay_out_machine() {
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
  echo 0 >/proc/sys/net/ipv4/icmp_ratelimit # a pod's every question to the missing name server is refused at once
}

join_networks() {
  local link
  link=$(link_name "$1")
  ip link add "$link" type veth peer name eth0 netns "$(machine_init)"
  ip address add "$(host_address)/30" dev "$link"
  ip link set "$link" up
  on_machine ip link set lo up
  on_machine ip address add "$(machine_address)/30" dev eth0
  on_machine ip link set eth0 up
  # Not a default route: nothing leaves the machine. The services' addresses are translated on their way there.
  on_machine ip route add "$service_range" via "$(host_address)"
  on_machine ip route add unreachable "$dns_service"
}

# The pods' control groups stand below one of ours, in every hierarchy: cgroup v2, or v1 with its many.
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
make_cgroups() {
  local root group file
  while read -r root; do
    group=$root/$(cgroup_name "$1")
    mkdir -p "$group"
    for file in cpuset.cpus cpuset.mems; do # in v1 a new one has none
      [ ! -e "$root/$file" ] || [ -e "$root/cgroup.controllers" ] || cat "$root/$file" >"$group/$file"
    done
    [ "$root" != /sys/fs/cgroup ] || hand_down_controllers "$root" "$group"
  done < <(cgroup_roots)
}
# A group of v2 has the controllers that the one above it hands down. systemd hands down what its own units want, and may
# take back what nobody uses; the kubelet wants all of these that the kernel has. What ours hands down on stays with it.
hand_down_controllers() { # from the root $1 to its group $2
  local group controller
  cp "$1/cgroup.subtree_control" "$state/etc/controllers"
  for group in "$1" "$2"; do
    for controller in cpu cpuset hugetlb memory pids; do
      ! grep -qw "$controller" "$1/cgroup.controllers" || echo "+$controller" >"$group/cgroup.subtree_control" ||
        die "the control group $group cannot hand down the controller $controller"
    done
  done
}
take_back_controllers() { # that were not handed down before, runc's among them; who needs one by now keeps it
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

no_process() { ! lives "$@"; }
no_link() { ! ip link show "$1" 2>/dev/null; }

take_down_machine() {
  local outer=() inner=()
  [ ! -e "$outer_record" ] || read -r -a outer <"$outer_record" || true
  [ ! -e "$inner_record" ] || read -r -a inner <"$inner_record" || true
  # Died before it wrote which process is the first inside: that one is its only child.
  if [ ${#inner[@]} -lt 2 ] && lives "${outer[@]:0:2}" && inner=("$(pgrep -P "${outer[0]}")"); then
    inner+=("$(start_time "${inner[0]}")")
  fi
  if lives "${outer[@]:0:2}"; then kill -KILL "${outer[0]}"; fi # its child dies with it
  if lives "${inner[@]}"; then kill -KILL "${inner[0]}"; fi
  rm -f "$state"/pids/*
  [ ${#inner[@]} -lt 2 ] || await 60 "the end of every process of the cluster" no_process "${inner[@]}"
  if [ ${#outer[@]} -eq 3 ]; then
    # The kernel would do it, but only after the last half-closed connection.
    ip link delete "$(link_name "${outer[2]}")" 2>/dev/null || no_link "$(link_name "${outer[2]}")"
    await 60 "the removal of the cluster's control groups" remove_cgroups "${outer[2]}"
    take_back_controllers
  fi
  rm -f "$inner_record" "$outer_record" "$outer_record.aside"
}
