"""The rows, tables and plots of the benchmark scripts; no measurement."""

import argparse
import json
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock
from xml.dom import minidom

CHECKOUT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(CHECKOUT / "bench"))

import elastic_report  # noqa: E402
import elastic_trainings  # noqa: E402
import results  # noqa: E402
import run  # noqa: E402
import step_vs_pytorch  # noqa: E402
import support  # noqa: E402
import svg  # noqa: E402
import tables  # noqa: E402
import torchrun_faults  # noqa: E402
import trainings  # noqa: E402

HEAD = "0123456789ab"


class CommitTest(unittest.TestCase):
    def test_a_clean_tree_has_its_commit(self):
        version = "tilewright-worker 0.1.0 (0123456789ab)"
        self.assertEqual(results.check_commit(version, HEAD, "", False), (HEAD, ""))

    def test_results_that_changed_before_the_build_do_not_matter(self):
        version = "tilewright-worker 0.1.0 (0123456789ab-dirty)"
        self.assertEqual(results.check_commit(version, HEAD, "", False), (HEAD, ""))

    def test_a_dirty_tree_is_refused_or_marked(self):
        version = "tilewright-worker 0.1.0 (0123456789ab-dirty)"
        commit, refusal = results.check_commit(version, HEAD, " M worker/nn/model.cpp", False)
        self.assertIsNone(commit)
        self.assertIn(" M worker/nn/model.cpp", refusal)
        self.assertEqual(
            results.check_commit(version, HEAD, " M worker/nn/model.cpp", True),
            (HEAD + "-dirty", ""),
        )

    def test_a_worker_of_another_commit_is_refused_even_with_allow_dirty(self):
        for version in ("tilewright-worker 0.1.0 (ba9876543210)", "tilewright-worker 0.1.0"):
            commit, refusal = results.check_commit(version, HEAD, "", True)
            self.assertIsNone(commit)
            self.assertIn(f"expected a build of {HEAD}", refusal)


class CpuTest(unittest.TestCase):
    def test_known_cpus_have_short_names_and_others_their_numbers(self):
        info = "vendor_id\t: {}\ncpu family\t: {}\nmodel\t\t: {}\nmodel name\t: X\n\nmodel\t: 9\n"
        for vendor, family, model, name in (
            ("AuthenticAMD", 26, 2, "zen5"),
            ("GenuineIntel", 6, 143, "intel-6-143"),
            ("HygonGenuine", 24, 1, "hygongenuine-24-1"),
        ):
            fields = support.cpu_fields(info.format(vendor, family, model))
            self.assertEqual(support.cpu_model(fields), name)


class ResultsTest(unittest.TestCase):
    FIGURES = {"median_seconds": 0.5, "gigabytes_per_second": 30, "copy_gigabytes_per_second": 40,
               "working_set_bytes": 1e6, "last_cache_bytes": 1e6}

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "adamw-zen5.json"

    def open(self, commit):
        return results.Results("adamw", commit, {"peer": "1"}, self.path)

    def key(self, model):
        return {"model": model, "threads": 2, "dtype": "bf16"}

    def test_a_measurement_replaces_its_row_and_keeps_the_others(self):
        self.open("a" * 12).put(self.key("minilm"), {**self.FIGURES, "median_seconds": 1})
        self.open("a" * 12).put(self.key("bert-base"), {**self.FIGURES, "median_seconds": 2})
        self.open("b" * 12).put(self.key("minilm"), {**self.FIGURES, "median_seconds": 3})
        rows = json.loads(self.path.read_text())["rows"]
        self.assertEqual([row["median_seconds"] for row in rows], [3, 2])
        self.assertEqual([row["commit"][0] for row in rows], ["b", "a"])
        self.assertEqual(rows[0]["versions"], {"peer": "1"})
        self.assertRegex(rows[0]["date"], r"^\d{4}-\d\d-\d\d$")

    def test_a_row_is_in_the_tables_at_once(self):
        page = self.path.with_name("README.md")
        self.open("a" * 12).put(self.key("minilm"), self.FIGURES)
        self.assertIn("| Zen 5 | minilm | 2 | 500.0 | 30.0 | 75 % |", page.read_text())
        self.open("b" * 12).put(self.key("minilm"), {**self.FIGURES, "median_seconds": 0.25})
        self.assertIn("| Zen 5 | minilm | 2 | 250.0 | 30.0 | 75 % |", page.read_text())

    def test_a_repetition_skips_what_the_same_commit_has_measured(self):
        self.open("a" * 12).put(self.key("minilm"), self.FIGURES)
        self.assertTrue(self.open("a" * 12).has(self.key("minilm")))
        self.assertFalse(self.open("a" * 12).has(self.key("bert-base")))
        self.assertFalse(self.open("b" * 12).has(self.key("minilm")))

    def test_every_row_of_the_committed_files_is_in_the_page_once(self):
        folder = CHECKOUT / "bench" / "results"
        page = tables.page(folder)
        count = 0
        for kind in results.KEYS:
            for rows in tables.read_files(folder, kind).values():
                keys = [tuple(row[field] for field in results.KEYS[kind]) for row in rows]
                self.assertEqual(len(keys), len(set(keys)), kind)
                count += len(rows)
        lines = [line for line in page.splitlines() if line.startswith("| ")]
        headers = sum(line.startswith("| CPU |") for line in lines)
        self.assertEqual(len(lines) - headers, count)
        self.assertEqual((folder / "README.md").read_text(), page, "run bench/tables.py")


class TablesTest(unittest.TestCase):
    def test_each_row_says_where_and_when_it_was_measured(self):
        row = {"model": "minilm", "threads": 2, "dtype": "bf16", "date": "2026-01-02",
               "median_seconds": 0.0123, "gigabytes_per_second": 30, "copy_gigabytes_per_second": 40,
               "working_set_bytes": 366e6, "last_cache_bytes": 32e6}
        lines = tables.table("adamw", {"zen5": [{**row, "commit": HEAD}],
                                       "intel-6-143": [{**row, "commit": None}]}).splitlines()
        self.assertEqual(
            lines[2],
            "| intel-6-143 | minilm | 2 | 12.3 | 30.0 | 75 % | 366 | 32 | 2026-01-02 | not recorded |",
        )
        self.assertEqual(
            lines[3],
            f"| Zen 5 | minilm | 2 | 12.3 | 30.0 | 75 % | 366 | 32 | 2026-01-02 | `{HEAD}` |",
        )

    def test_default_shapes_have_the_order_of_the_rows_keys(self):
        bench = run.Bench(argparse.Namespace(threads=[1]), HEAD)
        bench.call = lambda kind, *words: [{"head_size": 4, "heads": 3, "tokens": 2, "examples": 1}]
        self.assertEqual(bench.default_shapes("attention"), [(1, 2, 3, 4)])

    def test_every_kind_has_a_title_columns_and_a_measurement(self):
        for kind in results.KEYS:
            self.assertIn(kind, tables.TITLES)
            self.assertIn(kind, tables.COLUMNS)
            self.assertTrue(callable(getattr(run.Bench, kind)))

    def test_a_step_without_its_peer_has_empty_cells(self):
        row = {"model": "bert-base", "task": "qa", "batch": 12, "length": 384, "threads": 2,
               "dtype": "bf16", "tilewright": {"median_seconds": 1.5, "share_of_peak": 0.25}}
        self.assertEqual(tables.step_cells(row),
                         ["bert-base QA 12 x 384", "bf16", 2, "1.500", "25 %", "", "", ""])


class ElasticReportTest(unittest.TestCase):
    def test_reads_the_line_of_a_continuation(self):
        # The example of continuation_line() in its header.
        header = (CHECKOUT / "worker/train/summary.h").read_text(encoding="utf-8")
        example = re.search(r'^// "(recovered: [^"]*)"\n', header, re.MULTILINE)[1]
        line = "2026-11-25T09:12:21.947 info " + example.replace("\n// ", " ")
        found = elastic_trainings.CONTINUED.match(line)
        self.assertIsNotNone(found, line)
        self.assertEqual(found.groups()[1:10],
                         ("recovered", "worker 1 lost in step 58, which runs again", "1", "57", "0.12",
                          "0.05", "0.01", "0.01", "0.00"))
        self.assertEqual(elastic_trainings.world_after(line), 1)

    def test_sorts_the_lines_of_two_agents(self):
        with tempfile.TemporaryDirectory() as folder:
            logs = [pathlib.Path(folder) / name for name in ("host0.log", "host1.log")]
            logs[0].write_text("[worker 0.0] 2026-11-25T09:12:22.1 info step 2/9 loss 1\nnot a line\n")
            logs[1].write_text("[host] [worker 1.0] 2026-11-25T09:12:21.9 info step 1/9 loss 1\n")
            lines = elastic_trainings.logged(logs)
        self.assertEqual([int(elastic_trainings.STEP.match(line)[2]) for line in lines], [1, 2])

    def test_measuring_a_part_again_keeps_the_failures_of_the_others(self):
        report = elastic_report.Report(argparse.Namespace(worker="w"), "mrpc", {})
        summary = {"seconds": 1, "steps_back_at_most": 2, "checkpoints_read": 0}
        nothing = elastic_report.caused_by("SIGKILL of a worker", 0, [])
        with mock.patch.object(elastic_report, "mixed", lambda *_: ("a", [nothing], summary)), \
             mock.patch.object(elastic_report, "undisturbed", lambda *_: ("a", [(0, 1), (3, 2)])), \
             mock.patch.object(support, "worker_version", lambda _: "1"):
            report.run(["mixed"], None)
            again = elastic_report.Report(report.args, "mrpc", report.result)
            again.run(["undisturbed"], None)
        self.assertEqual(len(again.failures["mixed"]), 2)
        self.assertIn("the training did not continue", again.failures["mixed"][1])
        self.assertEqual((again.failures["undisturbed"], again.failures["hashes"]), ([], []))
        self.assertEqual(again.result["step_seconds"], 3)

    SUMMARY = {"seconds": 1, "steps_back_at_most": 1, "checkpoints_read": 0, "continued": []}

    def failures_of(self, part, returned, task="mrpc", **result):
        """Those of a part whose function of the same name returns `returned`."""
        report = elastic_report.Report(argparse.Namespace(worker="w", seed=1, kills=3), task, result)
        function = "random_kills" if part == "kills" else part
        with mock.patch.object(elastic_report, function, lambda *_: returned), \
             mock.patch.object(support, "worker_version", lambda _: "1"):
            report.run([part], None)
        return [failure for one in report.failures.values() for failure in one]

    def test_too_few_kills_and_a_missed_target_are_failures(self):
        kills = lambda *seconds: ([("a", self.SUMMARY)],
                                  [{"stall": 0.1, "next_step": next_step} for next_step in seconds])
        self.assertEqual(self.failures_of("kills", kills(9, 1.25, 1.2), step_seconds=0.25), [])
        self.assertEqual(self.failures_of("kills", kills(0.5, 0.5), step_seconds=0.25),
                         ["kills: 2 of 3 were measured"])
        self.assertEqual(self.failures_of("kills", kills()), ["kills: 0 of 3 were measured"])
        for task, target in (("mrpc", 1), ("squad", 1), ("squad-base", 3)):
            slow = 0.25 + target + 0.01
            self.assertEqual(
                self.failures_of("kills", kills(slow, slow, 0), task, step_seconds=0.25),
                [f"kills: the next step ended after {slow} s, the target is {target} s beside a step "
                 "of 0.25 s"])

    def test_another_training_makes_the_kills_that_one_was_too_short_for(self):
        asked = []
        def training(args, folder, rng, count):
            asked.append((folder.name, count))
            return "a", self.SUMMARY, [{}] * min(count, 2)
        with mock.patch.object(elastic_report, "training_with_kills", training):
            trainings, kills = elastic_report.random_kills(None, pathlib.Path(), None, 5)
        self.assertEqual(asked, [("kills-0", 5), ("kills-1", 3), ("kills-2", 1)])
        self.assertEqual((len(trainings), len(kills)), (3, 5))
        with mock.patch.object(elastic_report, "training_with_kills",
                               lambda *_: ("a", self.SUMMARY, [])):
            trainings, kills = elastic_report.random_kills(None, pathlib.Path(), None, 5)
        self.assertEqual((len(trainings), kills), (1, []))

    def test_another_training_hits_the_phases_that_one_was_too_short_for(self):
        begun = []
        def training(args, folder, points):
            begun.append((folder.name, points[0][0]))
            tried = min(15, len(points))
            return "a", self.SUMMARY, tried, [points[tried - 1][0]]
        with mock.patch.object(elastic_report, "training_with_phases", training):
            trainings, missed = elastic_report.phases(None, pathlib.Path())
        points = [point for point, _ in [*elastic_report.JOIN_PHASES, *elastic_report.PHASES]]
        self.assertEqual(begun, [("phases-0", points[0]), ("phases-1", points[15])])
        self.assertEqual((len(trainings), missed), (2, [points[14], points[-1]]))
        with mock.patch.object(elastic_report, "training_with_phases",
                               lambda *_: ("a", self.SUMMARY, 0, [])):
            self.assertEqual(elastic_report.phases(None, pathlib.Path())[1], points)

    def test_a_training_that_has_ended_has_no_workers(self):
        up = elastic_trainings.Up.__new__(elastic_report.Up)
        up.process = subprocess.Popen(["true"])
        up.process.wait()
        self.assertEqual(up.workers(), {})

    def test_every_training_of_a_part_counts(self):
        other = {**self.SUMMARY, "steps_back_at_most": 2, "checkpoints_read": 1}
        self.assertEqual(
            self.failures_of("phases", ([("a", self.SUMMARY), ("b", other)], ["step.begin"]),
                             sha256={"undisturbed, 2 workers": "a"}),
            ["killed in each phase: a loss cost 2 steps", "killed in each phase: 1 checkpoints were read",
             "phases: step.begin was not hit", "the SHA-256 differ"])

    def test_kills_in_every_phase_of_a_step_of_joining_and_of_a_checkpoint(self):
        header = (CHECKOUT / "worker/train/faults.h").read_text(encoding="utf-8")
        listed = header[header.index("kFaultPoints[]"):header.index("};")]
        points = set(re.findall(r'^    "([a-z0-9_.]+)",', listed, re.MULTILINE))
        # The trainings do not evaluate, and the output comes after the last step.
        left_out = {point for point in points
                    if point.startswith(("evaluate.", "best_model.", "output."))}
        hit = {point for point, _ in [*elastic_report.JOIN_PHASES, *elastic_report.PHASES]}
        self.assertEqual(hit, points - left_out)
        for task in ("mrpc", "squad", "mrpc-short"):
            self.assertIn("phases", elastic_report.TASKS[task]["parts"])


# Stands for a torchrun job: one process as both ranks, a step every few milliseconds.
TRAINING = """
import json, os, sys, time
with open(sys.argv[1], "a") as log:
    def write(**values):
        log.write(json.dumps({"time": time.time(), **values}) + "\\n")
        log.flush()
    for rank in (0, 1):
        write(event="start", rank=rank, pid=os.getpid(), step=0)
    for step in range(1, 100000):
        write(event="step", step=step)
        time.sleep(0.005)
"""


class TorchrunFaultsTest(unittest.TestCase):
    @staticmethod
    def step(time, step):
        return {"event": "step", "time": time, "step": step}

    def test_a_frozen_worker_stalls_the_others(self):
        before = [self.step(1, 7), self.step(2, 8)]
        # Rank 0 ends the step that it is in.
        events = [*before, self.step(3.5, 9), self.step(23.25, 10), self.step(90, 11)]
        self.assertEqual(torchrun_faults.cost_of_freeze(events, 3, 23),
                         {"steps_meanwhile": 1, "steps_lost": 0, "stall": 19.75})

    def test_a_restart_because_of_a_freeze_loses_the_steps_since_the_checkpoint(self):
        events = [self.step(2, 8), {"event": "start", "time": 10, "rank": 0, "step": 5},
                  {"event": "start", "time": 10.5, "rank": 1, "step": 5}, self.step(11, 6),
                  self.step(25, 7), self.step(26, 8), self.step(27, 9)]
        self.assertEqual(torchrun_faults.cost_of_freeze(events, 3, 23),
                         {"steps_meanwhile": 0, "steps_lost": 3, "stall": 25})

    def test_freezes_a_process_and_lets_it_continue(self):
        command = lambda job: [sys.executable, "-c", TRAINING, job.log]
        with tempfile.TemporaryDirectory() as folder, \
             mock.patch.object(torchrun_faults.Job, "command", command):
            job = torchrun_faults.Job(argparse.Namespace(save_steps=4), pathlib.Path(folder))
            try:
                freeze = torchrun_faults.freeze_worker(job, random.Random(1), 0.5)
            finally:
                job.stop()
        self.assertEqual((freeze["steps_lost"], freeze["hung"]), (0, False))
        self.assertGreaterEqual(freeze["stall"], 0.4)


class StepTest(unittest.TestCase):
    def test_reads_shapes(self):
        self.assertEqual(step_vs_pytorch.parse_shape("minilm:cls:32:128"),
                         {"model": "minilm", "task": "cls", "batch": 32, "length": 128})
        self.assertEqual(step_vs_pytorch.parse_shape("minilm:cls:32:128:avx2")["isa"], "avx2")
        for bad in ("minilm", "minilm:ner:32:128", "minilm:cls:x:128", "minilm:cls:32",
                    "minilm:cls:32:128:amx"):
            with self.assertRaises(argparse.ArgumentTypeError):
                step_vs_pytorch.parse_shape(bad)

    def test_leaves_out_the_peers_warm_up(self):
        said = "bert-base cls med 0.5s GF/s 70 times [9.5, 1.0, 0.5, 0.75]\n"
        self.assertEqual(step_vs_pytorch.peer_times(said), [0.5, 0.75])
        self.assertIsNone(step_vs_pytorch.peer_times("Traceback"))

    def test_draws_well_formed_bars(self):
        row = {"model": "bert-base", "task": "qa", "batch": 12, "length": 384, "speed_up": 2.0,
               "tilewright": {"median_seconds": 1.5}, "pytorch": {"median_seconds": 3.0}}
        figure = svg.step_figure([row], "X <& co>")
        document = minidom.parseString(figure)
        bars = document.getElementsByTagName("rect")[1:]
        self.assertEqual([bar.getAttribute("width") for bar in bars], ["190.0", "380.0"])
        self.assertIn("1.500 s; 2.00 x", figure)
        minidom.parseString(svg.step_figure([], "X"))


class TrainingsTest(unittest.TestCase):
    def test_reads_trainings(self):
        self.assertEqual(trainings.parse_training("mrpc:full"), {"task": "mrpc", "padding": "full"})
        for bad in ("mrpc", "mrpc:", "wnli:full", "mrpc:longest"):
            with self.assertRaises(argparse.ArgumentTypeError):
                trainings.parse_training(bad)

    def test_compares_the_medians_of_both_sides(self):
        times = {"tilewright": [(2, 1), (9, 1), (3, 1)], "transformers": [(6, 4), (12, 3), (99, 2)]}
        runs = {name: iter({"train_seconds": train, "eval_seconds": evaluation}
                           for train, evaluation in values) for name, values in times.items()}
        with mock.patch.object(trainings, "run_tilewright", lambda *_: next(runs["tilewright"])), \
             mock.patch.object(trainings, "run_trainer", lambda *_: next(runs["transformers"])):
            row = trainings.measure(argparse.Namespace(turns=3), {"task": "mrpc", "padding": "full"})
        self.assertEqual((row["speed_up"], row["eval_speed_up"]), (4, 3))
        key = {"task": "mrpc", "padding": "full", "model": "minilm", "dtype": "bf16", "threads": 2}
        self.assertEqual(tables.training_cells({**key, **row}),
                         ["mrpc", "full", "minilm", "bf16", 2, "3.0", "12.0", "4.00 x", "1.0", "3.0",
                          "3.00 x"])


class GradientsTest(unittest.TestCase):
    ROW = {"model": "bert-base", "head": "regression", "dtype": "fp32", "isa": "avx2", "worst_tensor": "classifier.bias",
           "worst_error_of_allowed": 1, "largest_logit_difference": 1e-5, "folder_logit_difference": 1e-5}

    @classmethod
    def setUpClass(cls):
        peers = ("torch", "transformers", "safetensors", "safetensors.torch", "write_goldens")
        sys.path.insert(0, str(CHECKOUT / "bench" / "parity"))
        with mock.patch.dict(sys.modules, {name: mock.MagicMock() for name in peers}):
            import gradients
        cls.beyond_limits = staticmethod(gradients.beyond_limits)

    def test_names_each_figure_that_is_beyond_its_limit(self):
        self.assertEqual(self.beyond_limits(self.ROW), [])
        nan = float("nan")
        for name, value, said in (
            ("worst_error_of_allowed", 1.25, "the gradient of classifier.bias has 1.25 times the error that is allowed"),
            ("worst_error_of_allowed", nan, "the gradient of classifier.bias has nan times the error that is allowed"),
            ("largest_logit_difference", 2e-5, "largest_logit_difference: found 2e-05, expected at most 1e-05"),
            ("largest_logit_difference", nan, "largest_logit_difference: found nan, expected at most 1e-05"),
            ("folder_logit_difference", 2e-5, "folder_logit_difference: found 2e-05, expected at most 1e-05"),
        ):
            with self.subTest(name=name, value=value):
                found = self.beyond_limits({**self.ROW, name: value})
                self.assertEqual(found, ["bert-base regression fp32 avx2: " + said])

    def test_bf16_has_no_limit_of_its_logits(self):
        row = {**self.ROW, "dtype": "bf16", "largest_logit_difference": 0.02}
        del row["folder_logit_difference"]
        self.assertEqual(self.beyond_limits(row), [])

    def test_the_logits_of_the_committed_results_are_within_the_limit(self):
        for path in (CHECKOUT / "bench" / "results").glob("gradients-*.json"):
            for row in json.loads(path.read_text())["results"]:
                with self.subTest(path=path.name, model=row["model"], isa=row["isa"]):
                    self.assertEqual(self.beyond_limits({**row, "worst_error_of_allowed": 0}), [])


class PeersTest(unittest.TestCase):
    def test_reads_the_lines_of_gloo_and_open_mpi(self):
        said = "warning\ngloo 2 ranks 0.0625 MB 1.50 ms algbw 0.04 GB/s\n" \
               "mpi 2 ranks 25 MB 31.20 ms algbw 0.78 GB/s\nmpi 2 ranks 0.0625 MB 0.02 ms algbw 2.60 GB/s\n"
        self.assertEqual([round(rate, 4) for rate in run.peer_rates(said)], [0.0407, 0.7825, 2.6])

    def test_measures_an_all_reduce_of_two_and_of_four_ranks(self):
        asked, started = [], []
        def call(self, kind, *words):
            asked.append(words[:4])
            sizes = words[words.index("--sizes") + 1].split(",")
            return {"rows": [{"gigabytes_per_second": 2.0} for _ in sizes]}
        def peer(command, **_):
            started.append(command)
            lines = [f"x 2 ranks {size} MB 100.00 ms algbw 1.00 GB/s" for size in run.ALLREDUCE_SIZES]
            return subprocess.CompletedProcess(command, 0, "\n".join(lines), "")
        args = argparse.Namespace(threads=[1], rounds=1, again=False, peer_python="python3", gloo=__file__,
                                  mpi=__file__)
        with tempfile.TemporaryDirectory() as folder, \
             mock.patch.object(run.Bench, "call", call), mock.patch.object(run.subprocess, "run", peer), \
             mock.patch.object(support, "missing_modules", lambda _: ""), \
             mock.patch.object(run.shutil, "which", lambda _: "mpicc"), \
             mock.patch.object(run.os, "cpu_count", lambda: 2):
            path = pathlib.Path(folder) / "allreduce-zen5.json"
            with mock.patch.object(run, "Results", lambda kind, commit: results.Results(
                    kind, commit, path=path)):
                run.Bench(args, HEAD).allreduce()
                count = len(started)
                run.Bench(args, HEAD).allreduce()  # compiles, and measures nothing again
            self.assertEqual(len(started), count + 1)
            rows = json.loads(path.read_text())["rows"]
            page = path.with_name("README.md").read_text()
        transports = ["shm", "tcp", "gloo", "mpi shm", "mpi tcp"]
        self.assertEqual([(row["ranks"], row["transport"], row["megabytes"]) for row in rows],
                         [(ranks, transport, size) for ranks in (2, 4) for transport in transports
                          for size in run.ALLREDUCE_SIZES])
        self.assertEqual({words[:2] for words in asked}, {("--ranks", 2), ("--ranks", 4)})
        for ranks in (2, 4):
            self.assertIn(["python3", "-m", "torch.distributed.run", "--standalone", "--nproc_per_node",
                           str(ranks), __file__], started)
            self.assertIn(f"| Zen 5 | {ranks} | 1 | shm | ", page)
        np = [command[command.index("-np") + 1] for command in started if command[0] == "mpirun"]
        self.assertEqual(np, ["2", "2", "4", "4"])
        self.assertEqual([command[command.index("-np") + 1] for command in started
                          if "--oversubscribe" in command], ["4", "4"])

    def test_puts_the_published_figures_beside_the_rows_of_their_nodes(self):
        row = {"step_seconds": 1.0, "exchange_seconds": 0.5, "hidden_share": 0.9, "speedup": 1.9,
               "efficiency": 0.95, "communication_cpu_seconds": 0.25,
               "shared_cores_efficiency": 0.85, "machine_load": 0.3}
        said = {"isa": "amx", "slowdown": 8.0, "repetitions": 3,
                "nodes": [{"nodes": 1, **row}, {"nodes": 2, **row}],
                "published": [{"nodes": 2, "speedup": 1.7, "what": "MRPC, two models"},
                              {"nodes": 4, "speedup": 3.0, "what": "MRPC, two models"}]}
        one, two = run.scaling_rows(said)
        self.assertEqual(one["published"], [])
        self.assertEqual(two["published"], said["published"][:1])
        key = {"model": "bert-base", "task": "qa", "batch": 12, "length": 384, "link": "25Gbit",
               "ddp_comm_hook": "bf16", "ddp_streams": 4, "host_speed": 1}
        self.assertEqual(
            tables.COLUMNS["scaling"][1]({**key, **two}),
            ["bert-base QA 12 x 384", "25Gbit", "bf16", 4, "1", "8 x", 2, "1.000", "0.500", "90 %", "1.90 x",
             "95 %", "0.250", "85 %", "30 %", "1.7 x (MRPC)"],
        )
        self.assertEqual(
            tables.COLUMNS["scaling"][1]({**key, **one}),
            ["bert-base QA 12 x 384", "25Gbit", "bf16", 4, "1", "8 x", 1, "1.000", *[""] * 8],
        )

    def test_writes_one_context_per_line(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"data": [{"paragraphs": [{"context": "One\n two."}, {"context": "Three."}]}]},
                      file)
            file.flush()
            self.assertEqual(run.contexts(pathlib.Path(file.name)), "One two.\nThree.")


if __name__ == "__main__":
    unittest.main()
