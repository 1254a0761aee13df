"""Generate the code of the contracts, or check that what is checked in is current.

    python proto/generate.py              write clients/python/omniflow/<area>/v1 and clients/go/gen/<area>/v1
    python proto/generate.py --check      generate into a temporary folder and compare; exit 1 and name what differs
    python proto/generate.py --lint       format, style and breaking changes of the contracts, by buf
    python proto/generate.py --baseline   rewrite proto/baseline.binpb, against which breaking changes are looked for

One compiler makes everything: protoc as it comes in grpcio-tools, with the Go plugins beside it. buf lints, checks for
breaking changes and builds the baseline, but does not generate: it hands plugins descriptors that differ in bytes from
protoc's (it fills json_name), and its grpc_python would need a wrapper around this same protoc. So there is no
buf.gen.yaml.

The google.* protos are copied from the installed googleapis-common-protos into third_party/, which git ignores. No file
here names a Go package: the import paths follow from the folders, and are given to the plugins as M options.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import distribution
from importlib.resources import files as resource_files
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
THIRD_PARTY = ROOT / "third_party"
WELL_KNOWN = Path(str(resource_files("grpc_tools"))) / "_proto"
BASELINE = PROTO / "baseline.binpb"
PYTHON = ROOT / "clients" / "python"
GO = ROOT / "clients" / "go"
GO_MODULE = "github.com/omniflow-serving/omniflow/clients/go"
BESIDE = str(Path(sys.executable).parent)
"""Where the wheels of this environment put their commands."""
# Versions are pinned by the `tool` directives of clients/go/go.mod.
GO_PLUGINS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")


def contract_files() -> list[str]:
    """All of our proto files, as protoc names them."""
    return sorted(path.relative_to(PROTO).as_posix() for path in PROTO.glob("omniflow/*/v*/*.proto"))


def service_files(protos: Sequence[str]) -> list[str]:
    """Those that define a service: only they need gRPC code."""
    return [proto for proto in protos if re.search(r"^service ", (PROTO / proto).read_text(), re.MULTILINE)]


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """Run a tool; its failure ends the program with its status, its own words already on standard error."""
    words = [str(word) for word in command]
    status = subprocess.run(words, cwd=cwd, check=False).returncode
    if status:
        raise SystemExit(f"{Path(words[0]).name} failed with status {status}")


def tool(name: str, *, places: Sequence[str | None]) -> str:
    """The first of the places that has the command; None stands for PATH."""
    for place in places:
        found = shutil.which(name, path=place)
        if found:
            return found
    raise SystemExit(f"no {name} on PATH or beside {sys.executable}; the extra `dev` has it")


def buf(*arguments: str | Path) -> None:
    """Run buf: the pinned one of this environment before any other."""
    run(tool("buf", places=(BESIDE, None)), *arguments)


def vendor_google_protos() -> None:
    """Copy google/api and google/rpc from the installed wheel, unless those of its version are there already.

    The folder is replaced as a whole, so that no old file survives, and is complete when its version is written.
    """
    package = distribution("googleapis-common-protos")
    stamp = THIRD_PARTY / ".version"
    if stamp.is_file() and stamp.read_text() == package.version:
        return
    shutil.rmtree(THIRD_PARTY, ignore_errors=True)
    for file in package.files or ():
        if file.suffix == ".proto" and file.parts[:2] in {("google", "api"), ("google", "rpc")}:
            target = THIRD_PARTY / file
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(str(package.locate_file(file)), target)
    stamp.write_text(package.version)


def protoc(*arguments: str) -> None:
    """Run protoc with our protos, google's vendored ones and the well-known types on its path."""
    includes = (f"-I{PROTO}", f"-I{THIRD_PARTY}", f"-I{WELL_KNOWN}")
    run(sys.executable, "-m", "grpc_tools.protoc", *includes, *arguments)


def generate_python(out: Path) -> None:
    """Messages with their type stubs, and service code where there are services."""
    protos = contract_files()
    out.mkdir(parents=True, exist_ok=True)
    protoc(f"--python_out={out}", f"--pyi_out={out}", *protos)
    protoc(f"--grpc_python_out={out}", *service_files(protos))


def go_plugins() -> dict[str, Path]:
    """Build the plugins that go.mod pins; the build cache makes this quick after the first time."""
    folder = GO / "bin"
    go = tool("go", places=(None, BESIDE))
    run(go, "build", "-buildvcs=false", "-o", f"{folder}{os.sep}", *GO_PLUGINS, cwd=GO)
    return {plugin.rpartition("/")[2]: folder / plugin.rpartition("/")[2] for plugin in GO_PLUGINS}


def go_package(proto: str) -> str:
    """Import path and package name: omniflow/kv/v1/page.proto is in .../gen/kv/v1, package kvv1."""
    area, version = Path(proto).parts[1:3]
    return f"{GO_MODULE}/gen/{area}/{version};{area}{version}"


def generate_go(out: Path) -> None:
    """Messages and service code of all packages."""
    protos = contract_files()
    plugins = go_plugins()
    out.mkdir(parents=True, exist_ok=True)
    for plugin, sources in (("go", protos), ("go-grpc", service_files(protos))):
        options = [f"--{plugin}_opt=M{proto}={go_package(proto)}" for proto in protos]
        protoc(
            f"--plugin=protoc-gen-{plugin}={plugins[f'protoc-gen-{plugin}']}",
            f"--{plugin}_out={out}",
            f"--{plugin}_opt=module={GO_MODULE}",
            *options,
            *sources,
        )


def is_generated(path: Path) -> bool:
    """Whether a file under clients/python is made by this script; hand-written ones live beside them."""
    return bool(re.search(r"_pb2(_grpc)?\.pyi?$", path.name))


def generated_files(python: Path, go: Path) -> dict[str, Path]:
    """Every generated file below two output roots, by the place where it is checked in."""
    found = {
        f"clients/python/{path.relative_to(python)}": path for path in python.rglob("*_pb2*") if is_generated(path)
    }
    found |= {f"clients/go/{path.relative_to(go)}": path for path in go.glob("gen/**/*.go")}
    return found


def package_markers() -> Iterator[Path]:
    """The __init__.py of each area and of its version. That of `omniflow` itself is written by hand."""
    for folder in sorted({Path(proto).parent for proto in contract_files()}):
        yield PYTHON / folder.parent / "__init__.py"
        yield PYTHON / folder / "__init__.py"


def generate_into(scratch: Path) -> dict[str, Path]:
    """Generate everything below a scratch folder."""
    python, go = scratch / "python", scratch / "go"
    generate_python(python)
    generate_go(go)
    return generated_files(python, go)


def write() -> None:
    """Bring the tree to what the contracts say: write what differs, remove what no contract makes any more."""
    vendor_google_protos()
    with tempfile.TemporaryDirectory() as scratch:
        fresh, present = generate_into(Path(scratch)), generated_files(PYTHON, GO)
        for name in sorted(present.keys() - fresh.keys()):
            present[name].unlink()
        for name, source in fresh.items():
            target = ROOT / name
            if not target.is_file() or target.read_bytes() != source.read_bytes():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, target)
    for marker in package_markers():
        marker.touch()


def check() -> None:
    """Compare what is checked in with what the contracts make."""
    vendor_google_protos()
    with tempfile.TemporaryDirectory() as scratch:
        fresh, present = generate_into(Path(scratch)), generated_files(PYTHON, GO)
        findings = [f"missing   {name}" for name in fresh.keys() - present.keys()]
        findings += [f"left over {name}" for name in present.keys() - fresh.keys()]
        findings += [
            f"outdated  {name}"
            for name in fresh.keys() & present.keys()
            if fresh[name].read_bytes() != present[name].read_bytes()
        ]
    findings += [f"missing   {marker.relative_to(ROOT)}" for marker in package_markers() if not marker.is_file()]
    if findings:
        raise SystemExit("\n".join([*sorted(findings), "generated code is not current: run proto/generate.py"]))


def lint() -> None:
    """Format, style, and changes that old peers or stored JSON would not survive."""
    vendor_google_protos()
    buf("format", "--path", "proto/omniflow", "--diff", "--exit-code")
    buf("lint")
    if BASELINE.is_file():
        with tempfile.TemporaryDirectory() as scratch:
            buf("breaking", "proto", "--against", complete_baseline(Path(scratch)))


def complete_baseline(scratch: Path) -> Path:
    """The baseline with the google files that it imports.

    The checked-in image holds our own files alone, but buf reads only images that are complete. An image is a message
    with one repeated field, and two serialised messages one after the other are their merge: appending the baseline to
    all files that it may import completes it.
    """
    complete = scratch / "baseline.binpb"
    google = [
        path.relative_to(root).as_posix()
        for root in (WELL_KNOWN, THIRD_PARTY)
        for path in root.glob("google/*/*.proto")
    ]
    protoc(f"--descriptor_set_out={complete}", *sorted(google))
    with complete.open("ab") as image:
        image.write(BASELINE.read_bytes())
    return complete


def write_baseline() -> None:
    """Freeze the contracts as they are; until the first tagged release with a line in the CHANGELOG."""
    vendor_google_protos()
    buf("build", "proto", "--exclude-imports", "--exclude-source-info", "-o", BASELINE)


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line and do what it says."""
    parser = argparse.ArgumentParser(description="Generate code from the contracts.")
    parser.add_argument(
        "--check", dest="action", action="store_const", const=check, help="compare only; exit 1 on a difference"
    )
    parser.add_argument(
        "--lint", dest="action", action="store_const", const=lint, help="lint, and look for breaking changes"
    )
    parser.add_argument(
        "--baseline", dest="action", action="store_const", const=write_baseline, help="rewrite proto/baseline.binpb"
    )
    parser.set_defaults(action=write)
    parser.parse_args(arguments).action()


if __name__ == "__main__":
    main()
