"""Runs that are killed or ended by a signal are resumed and equal uninterrupted runs."""

import io
import json
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import killing
import onepass as op
from killing import COMMAND, kill_runs, outcome, table
from onepass.cli import main
from onepass.evaluate import Report, run_progress
from onepass.serialization import archive
from sampling import ALL

SLOW = "--block 1 --checkpoint 0"  # so slow that a signal arrives before the end


@pytest.fixture
def stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    table(Path("stream.csv"), 300)
    return tmp_path


def does(words: str, code: int = 0) -> None:
    assert main(words.split()) == code


RUN = "run stream.csv --target price --drop id,known --model rls,sgd --save m.onepass"


@cache
def uninterrupted(words: str) -> dict[str, str]:
    """The outcome of an uninterrupted run; the stream is equal in all tests."""
    does(f"{words.replace('m.onepass', 'calm/m.onepass')} -q --report calm/report")
    return outcome(Path("calm"), Report.from_json("calm/report/report.json"))


def resumed(words: str) -> dict[str, str]:
    """The outcome of a resumed run."""
    does(f"{words} --resume -q --report report")
    return outcome(Path(), Report.from_json("report/report.json"))


def start(words: str, rows: int) -> "subprocess.Popen[str]":
    """Start a run in a process; return when it has learned more than some rows."""
    process = subprocess.Popen(  # noqa: S603  our own command
        [sys.executable, "-c", COMMAND, *words.split()],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    while process.poll() is None:
        stood = run_progress("m.onepass.run")
        if stood is not None and stood.rows > rows:
            return process
        time.sleep(0.02)
    raise AssertionError(process.communicate()[1])


# -- kills and signals -----------------------------------------------------------------------------


def test_killed_runs_equal_uninterrupted_run(tmp_path: Path) -> None:
    kills = 30 if ALL else 12
    found = kill_runs(tmp_path, kills, 500, every=12)
    assert found.kills == kills
    assert found.fresh == kills // 12
    assert max(found.places) > 100
    assert not found.wrong, killing.summary(found, 500, 0.0)


@pytest.mark.usefixtures("stream", "interruptible")
@pytest.mark.parametrize(
    ("ignored", "code", "more"),
    [(True, 143, "--delay 30"), (False, 130, "")],
    ids=["SIGTERM", "SIGINT"],
)
def test_run_ended_by_a_signal_is_saved_and_resumed(ignored: bool, code: int, more: str) -> None:  # noqa: FBT001
    """A run that ignores SIGINT, as one that a shell starts with ``&``, ends with SIGTERM."""
    words = f"{RUN} --block 1 {more}"
    before = signal.getsignal(signal.SIGINT)
    signal.signal(signal.SIGINT, signal.SIG_IGN if ignored else before)
    try:
        process = start(f"{words} --checkpoint 0", 35)
    finally:
        signal.signal(signal.SIGINT, before)
    process.send_signal(signal.SIGINT)
    if ignored:
        process.send_signal(signal.SIGTERM)
    output = process.communicate()[1]
    assert process.returncode == code
    assert "Interrupted after" in output
    assert "Continue with --resume." in output
    stood = run_progress("m.onepass.run")
    assert stood is not None
    assert not stood.finished
    waiting = min(30, stood.rows) if more else 0
    learned = op.load("m-rls.onepass")
    assert getattr(learned, "rows_seen_", 0) == stood.rows - waiting
    assert f"{waiting} of them with pending targets" in output or not more
    assert resumed(words) == uninterrupted(words)


@pytest.mark.usefixtures("stream")
def test_second_signal_ends_the_run_immediately() -> None:
    process = start(f"{RUN} {SLOW}", 5)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode in {143, 130}
    assert run_progress("m.onepass.run") is not None  # whole, whichever it is
    assert resumed(f"{RUN} --block 1") == uninterrupted(f"{RUN} --block 1")


# -- consecutive runs ------------------------------------------------------------------------------


@pytest.fixture
def unfinished(stream: Path) -> Path:
    """A run of the library, interrupted after 96 rows."""

    def end(rows: int) -> None:
        if rows >= 96:
            raise KeyboardInterrupt

    models = op.models.pipelines(["rls", "sgd"], "regression")
    source = op.stream.read("stream.csv", target="price", drop=["id", "known"], block=32)
    op.evaluate.prequential(models, source, checkpoint="m.onepass.run", on_progress=end)
    return stream


@pytest.mark.usefixtures("unfinished")
def test_command_resumes_a_run_of_the_library(capsys: pytest.CaptureFixture[str]) -> None:
    stood = run_progress("m.onepass.run")
    assert stood is not None
    assert stood.rows == 96
    words = f"{RUN} --block 32"
    assert resumed(words) == uninterrupted(words)
    capsys.readouterr()
    does(f"{words} --resume")
    output = capsys.readouterr()
    assert f"resumed after {stood.rows:,} and" in output.out
    assert f"Resumed after {300 - 4:,} rows." in output.err


@pytest.mark.usefixtures("unfinished")
def test_an_unfinished_run_is_not_overwritten(capsys: pytest.CaptureFixture[str]) -> None:
    before = Path("m.onepass.run").read_bytes()
    does(f"{RUN} -q", code=1)
    assert "Continue it with --resume, discard it with --restart" in capsys.readouterr().err
    assert Path("m.onepass.run").read_bytes() == before
    does(f"{RUN} -q --restart")
    does(f"{RUN} -q")  # a finished run is overwritten


@pytest.mark.usefixtures("stream")
def test_run_continues_with_rows_appended_to_its_file() -> None:
    lines = Path("stream.csv").read_text().splitlines(keepends=True)
    words = f"{RUN} --block 1"
    Path("stream.csv").write_text("".join(lines[:101]))
    does(f"{words} -q --resume")  # without a checkpoint, a new run begins
    Path("stream.csv").write_text("".join(lines))
    assert resumed(words) == uninterrupted(words)


@pytest.mark.usefixtures("stream")
def test_next_source_is_learned_once(capsys: pytest.CaptureFixture[str]) -> None:
    lines = Path("stream.csv").read_text().splitlines(keepends=True)
    head = lines[0]
    Path("monday.csv").write_text("".join(lines[:151]))
    Path("tuesday.csv").write_text("".join([head, *lines[151:]]))
    words = RUN.replace("stream.csv", "{day}.csv") + " -q --block 1 --resume --next-source"
    for day in ("monday", "tuesday", "tuesday"):
        does(words.format(day=day))
    unbroken = uninterrupted(f"{RUN} --block 1")
    again = outcome(Path(), _report_of("tuesday", words))
    assert again["m-rls.onepass"] == unbroken["m-rls.onepass"]
    assert not capsys.readouterr().err


def _report_of(day: str, words: str) -> Report:
    does(words.format(day=day) + " --report report")
    return Report.from_json("report/report.json")


@pytest.mark.usefixtures("stream")
def test_run_from_a_pipe_is_resumed(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = Path("stream.csv").read_text().splitlines(keepends=True)
    words = RUN.replace("stream.csv", "-") + " -q --block 1"

    def piped(text: str, more: str) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        does(f"{words} {more}")

    piped("".join(lines[:101]), "")
    piped("".join(lines[:201]), "--resume")  # the same rows again, and more
    piped(lines[0] + "".join(lines[201:]), "--resume --next-source")  # after its last row
    unbroken = uninterrupted(f"{RUN} --block 1")
    assert archive.contents("m-rls.onepass").sha256 == unbroken["m-rls.onepass"]


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (f"{RUN.replace('rls,sgd', 'rls')} --resume", "models.sgd was Pipeline and is missing"),
        (f"{RUN} --resume --set rls.forgetting=0.9", "RLSRegressor.forgetting was"),
        (f"{RUN} --resume --delay 3", "delay was 1 and is 3"),
        (f"{RUN.replace('id,known', 'id')} --resume", "`drop` was"),
        (f"{RUN.replace('stream.csv', 'other.csv')} --resume", "its first 300 rows differ"),
    ],
)
@pytest.mark.usefixtures("stream")
def test_a_checkpoint_of_another_run_is_an_error(
    words: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    import re

    text = Path("stream.csv").read_text()
    Path("other.csv").write_text(text.replace(",a,", ",z,"))
    does(f"{RUN} -q")
    before = Path("m.onepass.run").read_bytes()
    capsys.readouterr()
    does(words, code=1)
    output = capsys.readouterr().err
    assert re.search(message, output), output
    assert Path("m.onepass.run").read_bytes() == before


@pytest.mark.usefixtures("unfinished")
def test_inspect_shows_the_progress_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    does("inspect m.onepass.run --json")
    found = json.loads(capsys.readouterr().out)
    assert found == {
        "source": "stream.csv", "position": 97, "rows": 96, "resumed": [], "finished": False,
    }  # fmt: skip
    Path("m.onepass.run").write_bytes(b"torn")
    does("inspect m.onepass.run", code=1)
    for more in ("", "--resume"):
        does(f"{RUN} -q {more}", code=1)
        assert "Or discard it with --restart." in capsys.readouterr().err
    does(f"{RUN} -q --restart")


@pytest.mark.usefixtures("stream")
def test_wrong_usage_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    does("run stream.csv --target price --resume", code=2)
    assert "--resume requires --save" in capsys.readouterr().err
    does(f"{RUN} -q")
    before = Path("m.onepass.run").read_bytes()
    for more, output in (
        ("--next-source", "--next-source requires --resume"),
        ("--delay-until known", "--delay-until must name a column"),
        ("--delay 5 --max-waiting 2", "Increase --max-waiting"),
        ("--checkpoint -1", "seconds >= 0"),
    ):
        does(f"{RUN} {more}", code=2)
        assert output in capsys.readouterr().err
    assert Path("m.onepass.run").read_bytes() == before


@pytest.mark.filterwarnings("default")
@pytest.mark.usefixtures("stream")
def test_unwritable_checkpoint_is_reported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    does(f"{RUN} -q")
    before = Path("m.onepass.run").read_bytes()
    write = archive.save_file

    def full(arrays: Any, path: Any, metadata: Any) -> None:
        if '"kind":"run"' in metadata["onepass"]:
            raise OSError(28, "No space left on device")
        write(arrays, path, metadata=metadata)

    monkeypatch.setattr("onepass.serialization.archive.save_file", full)
    does(f"{RUN} -q --checkpoint 0", code=1)
    output = capsys.readouterr()
    assert "learned in one pass" in output.out
    assert output.err.count("CheckpointWarning") <= 2  # on the way and at the end, not more
    assert "No space left on device" in output.err
    assert "could not be written: the run cannot be resumed" in output.err
    assert Path("m.onepass.run").read_bytes() == before
    assert not list(Path().glob(".onepass-*"))
