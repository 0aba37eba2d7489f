# Names, paths and helpers of the cluster scripts; sourced by `cluster`.
# shellcheck shell=bash disable=SC2034  # used by the files sourced after it

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
state=${TILEWRIGHT_CLUSTER_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/tilewright/cluster}
programs=$("$checkout/.ci/control-plane" folder)

node=tilewright-node
node_label=tilewright.dev/pool=cpu
pod_range=10.244.0.0/24
service_range=10.96.0.0/16
api_service=10.96.0.1  # the API server's Service has the first address of service_range
dns_service=10.96.0.10 # the pods' name server; unreachable, so that lookups fail at once
volume_count=64

# Path of $state inside the machine.
inside=/run/tilewright

log() { printf 'cluster: %s\n' "$*" >&2; }
die() {
  log "$*"
  exit 1
}

# await SECONDS WHAT COMMAND...: polls 20 times a second until the command succeeds.
await() {
  local timeout=$1 what=$2 end
  shift 2
  end=$((SECONDS + timeout))
  until "$@" >/dev/null 2>&1; do
    require_programs
    [ "$SECONDS" -lt "$end" ] || die "$what: timeout after $timeout s; see $state/logs"
    sleep 0.05
  done
}

# PIDs are reused; a PID with its start time is unique.
start_time() { # of process $1, in clock ticks since boot
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) } # the name before it may contain spaces and parentheses
  set -- $stat
  [ "$1" != Z ] || return 1
  echo "${20}"
}
is_running() { [ -n "${1:-}" ] && [ "$(start_time "$1")" = "${2:-}" ]; }

# `down` deletes the content of this directory, so it must belong to a cluster.
check_state() {
  case $state in
    /*) ;;
    *) die "TILEWRIGHT_CLUSTER_DIR=$state: expected an absolute path" ;;
  esac
  case $state/ in
    "$checkout"/*) die "TILEWRIGHT_CLUSTER_DIR=$state: expected a directory outside the checkout" ;;
  esac
  if [ -d "$state" ] && [ ! -e "$state/lock" ] && [ -n "$(ls -A "$state")" ]; then
    die "$state is not empty and does not belong to a cluster"
  fi
}

# Allows one command at a time; started programs do not inherit descriptor 9.
lock_state() {
  mkdir -p "$state"
  exec 9>>"$state/lock"
  flock --wait 20 9 || die "another command is using $state"
}
