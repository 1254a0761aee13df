"""Habits of processes."""

from __future__ import annotations

import asyncio
import os
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from omniflow.process import HomeProcess, forbid_forks, listen_umask, runtime_dir, sole_loop, unix_target
from omniflow_core.errors import OmniFlowError, Reason


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code], env=os.environ | env, capture_output=True, text=True, timeout=30, check=False
    )


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_runtime_dir_is_made_private_where_the_environment_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMNIFLOW_RUNTIME_DIR", str(tmp_path / "own"))
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "session"))
    assert runtime_dir() == tmp_path / "own"
    assert runtime_dir("demo") == tmp_path / "own" / "demo"
    assert mode_of(tmp_path / "own") == mode_of(tmp_path / "own" / "demo") == 0o700
    monkeypatch.delenv("OMNIFLOW_RUNTIME_DIR")
    assert runtime_dir() == tmp_path / "session" / "omniflow"
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    monkeypatch.setattr("tempfile.gettempdir", lambda: str(tmp_path))
    assert runtime_dir() == tmp_path / f"omniflow-{os.getuid()}"


@pytest.mark.parametrize("trouble", ["open", "link", "file"])
def test_runtime_dir_that_others_could_enter_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trouble: str
) -> None:
    path = tmp_path / "run"
    if trouble == "open":
        path.mkdir()
        path.chmod(0o755)
    elif trouble == "link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        path.symlink_to(tmp_path / "elsewhere")
    else:
        path.touch()
    monkeypatch.setenv("OMNIFLOW_RUNTIME_DIR", str(path))
    with pytest.raises(OmniFlowError) as caught:
        runtime_dir()
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert str(path) in caught.value.message


@pytest.mark.parametrize("name", ["..", "a/b", "/etc"])
def test_runtime_dir_never_leaves_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("OMNIFLOW_RUNTIME_DIR", str(tmp_path / "run"))
    with pytest.raises(OmniFlowError):
        runtime_dir(name)


def test_socket_path_that_is_too_long_is_refused_with_the_remedy() -> None:
    assert unix_target(Path("/run/x.sock")) == "unix:/run/x.sock"
    with pytest.raises(OmniFlowError, match="OMNIFLOW_RUNTIME_DIR"):
        unix_target(Path("/" + "x" * 107))


def test_files_made_under_the_listen_umask_are_private(tmp_path: Path) -> None:
    with listen_umask():
        (tmp_path / "inside").touch()
    (tmp_path / "after").touch()
    assert mode_of(tmp_path / "inside") == 0o600
    assert mode_of(tmp_path / "after") != 0o600


@pytest.mark.integration
def test_fork_is_refused_with_the_remedy_and_spawn_works() -> None:
    done = run_python(
        """
import multiprocessing, os, pty, subprocess, sys
from omniflow.process import forbid_forks
if __name__ == "__main__":
    with forbid_forks():
        for fork in (os.fork, pty.fork, multiprocessing.get_context("fork").Process(target=print).start):
            try:
                fork()
            except RuntimeError as error:
                assert "spawn" in str(error), error
            else:
                os._exit(9)
        subprocess.run([sys.executable, "-c", ""], check=True)
        child = multiprocessing.get_context("spawn").Process(target=os.getpid)
        child.start()
        child.join()
        assert child.exitcode == 0
    if os.fork() == 0:
        os._exit(0)
    os.wait()
    print("as it should be")
"""
    )
    assert done.stdout == "as it should be\n", done.stderr


@pytest.mark.integration
def test_what_is_bound_to_a_process_is_refused_in_its_child() -> None:
    done = run_python(
        """
import os
from omniflow.process import HomeProcess
home = HomeProcess("the client")
home.check()
if os.fork() == 0:
    try:
        home.check()
    except RuntimeError as error:
        os._exit(7 if "the client" in str(error) and "spawn" in str(error) else 1)
    os._exit(2)
raise SystemExit(os.waitstatus_to_exitcode(os.wait()[1]))
"""
    )
    assert done.returncode == 7, done.stderr


def test_forks_are_allowed_again_afterwards() -> None:
    with forbid_forks(), pytest.raises(RuntimeError, match="spawn"):
        os.fork()
    HomeProcess("x").check()


async def test_second_loop_of_a_process_is_refused_while_the_first_serves() -> None:
    failures: list[str] = []

    async def serve_elsewhere() -> None:
        with sole_loop():
            pass

    def other_thread() -> None:
        try:
            asyncio.run(serve_elsewhere())
        except RuntimeError as error:
            failures.append(str(error))

    with sole_loop():
        with sole_loop():  # another server in the same loop
            pass
        thread = threading.Thread(target=other_thread)
        thread.start()
        await asyncio.to_thread(thread.join)
    assert len(failures) == 1
    assert "one loop per process" in failures[0]
    await asyncio.to_thread(other_thread)
    assert len(failures) == 1


@pytest.mark.integration
def test_child_of_a_parent_that_is_gone_already_exits() -> None:
    code = "from omniflow.process import die_with_parent; die_with_parent(); print('alive')"
    assert run_python(code).stdout == "alive\n"
    assert run_python(code, OMNIFLOW_PARENT_PID=str(os.getpid())).stdout == "alive\n"
    gone = run_python(code, OMNIFLOW_PARENT_PID="1")
    assert (gone.returncode, gone.stdout) == (1, "")
    assert "not a process id" in run_python(code, OMNIFLOW_PARENT_PID="x").stderr
