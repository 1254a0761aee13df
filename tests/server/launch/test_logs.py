"""Bounded logs."""

from __future__ import annotations

import os
from pathlib import Path

from omniflow_server.launch import logs


def test_rotate_keeps_the_newest_old_logs(tmp_path: Path) -> None:
    log = tmp_path / "llm-0.log"
    for text in ("first", "second", "third", "fourth"):
        log.write_text(text)
        logs.rotate(log, keep=2)
    assert not log.exists()
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        "llm-0.log.1": "fourth",
        "llm-0.log.2": "third",
    }


def test_rotate_without_any_to_keep_removes_the_log(tmp_path: Path) -> None:
    log = tmp_path / "llm-0.log"
    log.write_text("text")
    logs.rotate(log, keep=0)
    assert list(tmp_path.iterdir()) == []


def test_cut_empties_a_log_under_its_writer(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "llm-0.log"
    writer = logs.open_for_child(log)
    try:
        os.write(writer, b"x" * 100)
        assert not logs.cut(log, size_bytes=100, keep=1)
        os.write(writer, b"y")
        assert logs.cut(log, size_bytes=100, keep=1)
        os.write(writer, b"after")
    finally:
        os.close(writer)
    assert log.read_bytes() == b"after"
    assert log.with_name("llm-0.log.1").read_bytes() == b"x" * 100 + b"y"
    assert log.stat().st_mode & 0o777 == 0o600


def test_tail_is_the_last_lines(tmp_path: Path) -> None:
    log = tmp_path / "llm-0.log"
    log.write_text("".join(f"line {number}\n" for number in range(5000)))
    assert logs.tail(log, lines=2) == "line 4998\nline 4999"
    assert logs.tail(tmp_path / "absent.log") == ""
