"""Tests of the soak's schedule and of its signals; they need no cluster."""

import os
import signal
import subprocess
import unittest

import processes
import schedule

ROUNDS = 200


class Schedule(unittest.TestCase):
    def test_a_seed_gives_the_same_rounds_in_any_order(self):
        forward = [schedule.make_round(7, number) for number in range(5)]
        backward = [schedule.make_round(7, number) for number in reversed(range(5))]
        self.assertEqual(forward, backward[::-1])
        self.assertNotEqual(schedule.make_round(8, 0).faults, forward[0].faults)

    def test_all_workers_get_an_equal_part_of_the_batch(self):
        for workers in range(1, schedule.MAX_WORKERS + 1):
            self.assertEqual(schedule.GLOBAL_BATCH % workers, 0)

    def test_every_kind_occurs_within_its_bounds(self):
        seen = set()
        for number in range(ROUNDS):
            one = schedule.make_round(7, number)
            self.assertEqual(len({job.name for job in one.jobs}), schedule.SLOTS)
            for fault in one.faults:
                seen.add(fault.kind)
                self.assertLess(fault.at, schedule.LAST_FAULT_SECONDS)
                lasts = schedule.KINDS[fault.kind].seconds
                low, high = lasts or (0, 0)
                self.assertTrue(low <= fault.seconds <= high, fault)
        self.assertEqual(seen, set(schedule.KINDS))


class Signals(unittest.TestCase):
    def setUp(self):
        self.child = subprocess.Popen(["sleep", "60"])
        self.process = processes.find(self.child.pid)

    def tearDown(self):
        self.child.kill()
        self.child.wait()

    def test_a_process_is_frozen_and_resumed(self):
        self.assertTrue(processes.send(self.process, signal.SIGSTOP))
        _, status = os.waitpid(self.child.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        self.assertTrue(processes.is_running(self.process))
        self.assertTrue(processes.send(self.process, signal.SIGCONT))
        _, status = os.waitpid(self.child.pid, os.WCONTINUED)
        self.assertTrue(os.WIFCONTINUED(status))

    def test_another_process_with_the_same_pid_is_not_hit(self):
        older = processes.Process(self.process.pid, self.process.start - 1)
        self.assertFalse(processes.send(older, signal.SIGKILL))
        self.assertIsNone(self.child.poll())
        self.assertIsNone(processes.cpu_seconds(older))

    def test_an_ended_process_is_not_running(self):
        self.assertTrue(processes.send(self.process, signal.SIGKILL))
        self.child.wait()
        self.assertFalse(processes.is_running(self.process))
        self.assertFalse(processes.send(self.process, signal.SIGKILL))

    def test_processes_are_found_by_a_variable(self):
        # Popen returns while exec() replaces the environment; the child's line comes after it.
        child = subprocess.Popen(["/bin/sh", "-c", "echo ready; read line"],
                                 env={"TILEWRIGHT_JOB_UID": "chaos-test"},
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        try:
            self.assertEqual(child.stdout.readline(), b"ready\n")
            found = processes.with_variable("TILEWRIGHT_JOB_UID", {"chaos-test"})
            self.assertEqual([each.pid for each in found], [child.pid])
        finally:
            child.kill()
            child.communicate()


if __name__ == "__main__":
    unittest.main()
