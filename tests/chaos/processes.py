"""Processes of the local cluster as the host sees them: /proc, signals that cannot hit another process."""

import dataclasses
import os
import pathlib
import signal

TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclasses.dataclass(frozen=True)
class Process:
    """A PID with its start time, because PIDs are used again."""

    pid: int
    start: int  # clock ticks since boot


def _stat(pid):
    """The fields of /proc/PID/stat from the third on (state, parent, ...), or None."""
    try:
        text = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()


def find(pid):
    """The process, or None if it does not run (any more)."""
    stat = _stat(pid)
    return None if stat is None or stat[0] == "Z" else Process(pid, int(stat[19]))


def is_running(process):
    return find(process.pid) == process


def cpu_seconds(process):
    """User and system time, or None if the process has ended."""
    stat = _stat(process.pid)
    if stat is None or int(stat[19]) != process.start:
        return None
    return (int(stat[11]) + int(stat[12])) / TICKS


def send(process, number):
    """Signals exactly this process. Returns whether it was still running."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:
        return False
    try:
        if not is_running(process):  # checked after the descriptor pins the process
            return False
        signal.pidfd_send_signal(descriptor, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(descriptor)


def environment(pid):
    try:
        data = pathlib.Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (part.split(b"=", 1) for part in data.split(b"\0") if b"=" in part)
    return {name.decode(errors="replace"): value.decode(errors="replace") for name, value in pairs}


def all_pids():
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _name(pid):
    try:
        return os.path.basename(os.readlink(f"/proc/{pid}/exe"))
    except OSError:
        return ""


def programs(name):
    """(process, environment) of every running process of a program."""
    found = []
    for pid in all_pids():
        if _name(pid) != name:
            continue
        process = find(pid)
        if process is not None:
            found.append((process, environment(pid)))
    return found


def with_variable(variable, values):
    """Every process, whatever its program, whose environment has one of the values."""
    found = []
    for pid in all_pids():
        if environment(pid).get(variable) in values:
            process = find(pid)
            if process is not None:
                found.append(process)
    return found


def in_machine(init, inner):
    """The process that has the PID `inner` in the PID namespace of the process `init`."""
    namespace = os.readlink(f"/proc/{init}/ns/pid")
    for pid in all_pids():
        try:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            same = os.readlink(f"/proc/{pid}/ns/pid") == namespace
        except OSError:
            continue
        ids = next((line for line in status.splitlines() if line.startswith("NSpid:")), "")
        if same and ids.split()[-1:] == [str(inner)]:
            return find(pid)
    return None


def usage(process):
    """Open descriptors, threads, resident memory and its maximum (bytes), or None if it has ended."""
    try:
        descriptors = len(os.listdir(f"/proc/{process.pid}/fd"))
        status = pathlib.Path(f"/proc/{process.pid}/status").read_text()
    except OSError:
        return None
    if not is_running(process):
        return None
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)

    def kilobytes(name):
        return int(fields[name].split()[0]) * 1024

    return {
        "descriptors": descriptors,
        "threads": int(fields["Threads"]),
        "resident": kilobytes("VmRSS"),
        "maximum": kilobytes("VmHWM"),
    }
