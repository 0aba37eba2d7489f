# Starts and stops the daemons inside the machine. Each has a PID record and a log.
# shellcheck shell=bash

# Runs inside the machine in a shell that exits at once, so that PID 1 adopts the program.
run_program() {
  local name=$1
  shift
  setsid "$@" </dev/null >>"/run/tilewright/logs/$name.log" 2>&1 &
  local pid=$! stat
  # Before it has a session of its own it is killed with the process group of this shell, for
  # example by a test that runs `cluster start`.
  while stat=$(cat "/proc/$pid/stat" 2>/dev/null); do
    set -- ${stat##*) } # state, parent, process group, session, ...
    [ "$1" != Z ] && [ "$4" != "$pid" ] || break
  done
  echo "$pid $(start_time "$pid" || echo ended)" >"/run/tilewright/pids/$name"
}
start_program() { # NAME COMMAND...
  on_machine bash -euc "$(declare -f start_time run_program); run_program \"\$@\"" - "$@"
}

program_is_running() {
  local record
  [ -e "$state/pids/$1" ] && read -r -a record <"$state/pids/$1" &&
    on_machine bash -c "$(declare -f start_time is_running); is_running \"\$@\"" - "${record[@]}"
}

# Fails if a program has exited by itself.
require_programs() {
  local record name
  for record in "$state"/pids/*; do
    [ -e "$record" ] || continue
    name=${record##*/}
    program_is_running "$name" || die "$name has exited; the last lines of $state/logs/$name.log:
$(tail -n 5 "$state/logs/$name.log")"
  done
}

# Sends SIGKILL after 10 s: the API server, for example, waits for its watches to end.
stop_program() { # NAME [SIGNAL]
  local record end=$((SECONDS + 10))
  program_is_running "$1" || return 0
  read -r -a record <"$state/pids/$1"
  on_machine kill -s "${2:-TERM}" "${record[0]}"
  while program_is_running "$1"; do
    [ "$SECONDS" -lt "$end" ] || on_machine kill -KILL "${record[0]}" || true
    sleep 0.05
  done
  rm "$state/pids/$1"
}
