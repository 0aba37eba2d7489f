# Starts and stops the long-running programs inside the machine, each with a record of its process and a log.
# shellcheck shell=bash

# Runs inside, in a shell that ends at once: the program is then a child of the machine's first process.
run_program() {
  local name=$1
  shift
  setsid "$@" </dev/null >>"/run/tilewright/logs/$name.log" 2>&1 &
  echo "$! $(start_time $! || echo ended)" >"/run/tilewright/pids/$name"
}
start_program() { # NAME COMMAND...
  on_machine bash -euc "$(declare -f start_time run_program); run_program \"\$@\"" - "$@"
}

program_lives() {
  local record
  [ -e "$state/pids/$1" ] && read -r -a record <"$state/pids/$1" &&
    on_machine bash -c "$(declare -f start_time lives); lives \"\$@\"" - "${record[@]}"
}

# A program that ended by itself is a failure of the start.
require_programs() {
  local record name
  for record in "$state"/pids/*; do
    [ -e "$record" ] || continue
    name=${record##*/}
    program_lives "$name" || die "$name has ended; the last lines of $state/logs/$name.log:
$(tail -n 5 "$state/logs/$name.log")"
  done
}

# Programs that take their time to end, as the API server does while it is watched, are killed.
stop_program() { # NAME [SIGNAL]
  local record end=$((SECONDS + 10))
  program_lives "$1" || return 0
  read -r -a record <"$state/pids/$1"
  on_machine kill -s "${2:-TERM}" "${record[0]}"
  while program_lives "$1"; do
    [ "$SECONDS" -lt "$end" ] || on_machine kill -KILL "${record[0]}" || true
    sleep 0.05
  done
  rm "$state/pids/$1"
}
