# Names, places and small helpers of the cluster's scripts; sourced by `cluster`.
# shellcheck shell=bash disable=SC2034  # most of this is read by the files sourced after it

checkout=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../.." && pwd)
state=${TILEWRIGHT_CLUSTER_DIR:-${XDG_STATE_HOME:-$HOME/.local/state}/tilewright/cluster}
programs=$("$checkout/.ci/control-plane" folder)

node=tilewright-node
node_label=tilewright.dev/pool=cpu
pod_range=10.244.0.0/24
service_range=10.96.0.0/16
api_service=10.96.0.1  # the first of service_range is the API server's own
dns_service=10.96.0.10 # what pods are told to ask; nobody is there, and they learn it at once
volume_count=64

# What the machine of the cluster sees $state as, wherever that is.
inside=/run/tilewright

say() { printf 'cluster: %s\n' "$*" >&2; }
die() {
  say "$*"
  exit 1
}

# await SECONDS WHAT COMMAND...: until the command succeeds. Nobody tells us, so it asks 20 times a second.
await() {
  local patience=$1 what=$2 end
  shift 2
  end=$((SECONDS + patience))
  until "$@" >/dev/null 2>&1; do
    require_programs
    [ "$SECONDS" -lt "$end" ] || die "$what: not within $patience s; $state/logs may say why"
    sleep 0.05
  done
}

# A process id alone may be somebody else's by now; with the time of its start it is not.
start_time() { # of process $1, in clock ticks since boot
  local stat
  stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 1
  stat=${stat##*) } # the name before it may hold anything
  set -- $stat
  [ "$1" != Z ] || return 1
  echo "${20}"
}
lives() { [ -n "${1:-}" ] && [ "$(start_time "$1")" = "${2:-}" ]; }

# Everything below is removed again, so it must be a folder of ours.
check_state() {
  case $state in
    /*) ;;
    *) die "TILEWRIGHT_CLUSTER_DIR=$state: expected an absolute path" ;;
  esac
  case $state/ in
    "$checkout"/*) die "TILEWRIGHT_CLUSTER_DIR=$state: expected a folder outside the checkout" ;;
  esac
  if [ -d "$state" ] && [ ! -e "$state/lock" ] && [ -n "$(ls -A "$state")" ]; then
    die "$state holds something that is not a cluster's"
  fi
}

# One command of these scripts at a time; what they start does not inherit descriptor 9.
lock_state() {
  mkdir -p "$state"
  exec 9>>"$state/lock"
  flock --wait 20 9 || die "another command is at work on $state"
}
