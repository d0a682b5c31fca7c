"""Create .venv and install the locked environment into it, then the project itself; does nothing if that was done.

Needs CPython 3.11 and nothing else. Takes uv if it is there or can be had, else pip; TRACKSIDE_INSTALLER=pip insists.
"""

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCK = ROOT / "requirements.lock"
CPU_LOCK = ROOT / "requirements-cpu.lock"
UV_LOCK = ROOT / "requirements-uv.lock"
INPUTS = (LOCK, CPU_LOCK, UV_LOCK, ROOT / "pyproject.toml", Path(__file__))

CUDA_PACKAGE = re.compile(r"(nvidia|cuda)-|triton$")
"""What PyPI's torch needs and the CPU build does not."""


def main() -> None:
    """Install unless the stamp in .venv says that nothing has changed since the last time."""
    if sys.version_info[:2] != (3, 11):
        sys.exit(f"Python 3.11 is needed, and this is {sys.version.split()[0]}; try `make env PYTHON=python3.11`")
    target = ROOT / ".venv"
    stamp = target / ".trackside-installed"
    wanted = fingerprint(INPUTS, target)
    if stamp.exists() and stamp.read_text() == wanted:
        return
    python = target / "bin" / "python"
    if not runs_3_11(python):
        print(f"creating {target}", flush=True)
        venv.create(target, clear=target.exists(), with_pip=True)
    stamp.unlink(missing_ok=True)
    find_links = configured_find_links(python)
    requirements = target / "requirements.txt"
    requirements.write_text(choose_requirements(LOCK.read_text(), CPU_LOCK.read_text(), has_gpu(), offers(find_links)))
    install(python, requirements, find_links)
    stamp.write_text(wanted)


def choose_requirements(lock: str, cpu_lock: str, has_gpu: bool, offered: str) -> str:
    """Return the requirements for this machine.

    Args:
        lock: The whole environment.
        cpu_lock: The line that replaces torch.
        has_gpu: Whether torch needs CUDA here.
        offered: Names of the files that the machine's find-links offer, in one text.
    """
    wheel = re.search(r"^torch==(\S+)", cpu_lock, re.MULTILINE)
    assert wheel, "requirements-cpu.lock names no torch"
    if has_gpu or f"torch-{wheel[1]}-" not in offered:
        return lock
    return without_cuda(lock) + cpu_lock


def without_cuda(lock: str) -> str:
    """Leave torch and the packages of CUDA, with their hashes, out of a lock."""
    kept = []
    is_kept = True
    for line in lock.splitlines(keepends=True):
        if match := re.match(r"[A-Za-z0-9][\w.-]*", line):
            name = match[0].lower()
            is_kept = name != "torch" and not CUDA_PACKAGE.match(name)
        if is_kept:
            kept.append(line)
    return "".join(kept)


def has_gpu() -> bool:
    """Say whether there is an NVIDIA card, or its driver's command."""
    return any(Path("/dev").glob("nvidia*")) or shutil.which("nvidia-smi") is not None


def configured_find_links(python: Path) -> list[str]:
    """Return the places of wheels that pip is set up to look at on this machine."""
    listing = subprocess.run(
        [python, "-m", "pip", "config", "list"], capture_output=True, text=True, check=False
    ).stdout
    return parse_find_links(listing, os.environ.get("PIP_FIND_LINKS", ""))


def parse_find_links(listing: str, variable: str) -> list[str]:
    """Read the places from the output of `pip config list`, and from the variable that overrides it.

    >>> parse_find_links("global.timeout='60'\\nglobal.find-links='/wheels https://host/page'", "")
    ['/wheels', 'https://host/page']
    """
    places = variable.split()
    for line in listing.splitlines():
        key, _, value = line.partition("=")
        if key.endswith(".find-links"):
            places += str(ast.literal_eval(value)).split()
    return list(dict.fromkeys(places))


def offers(find_links: list[str]) -> str:
    """Return what the places list: file names of a folder, or the text of a page."""
    return "\n".join(urllib.parse.unquote(_list(place)) for place in find_links)


def _list(place: str) -> str:
    path = Path(place.removeprefix("file://")).expanduser()
    if path.is_dir():
        return "\n".join(entry.name for entry in path.iterdir())
    try:
        if path.is_file():
            return path.read_text()
        with urllib.request.urlopen(place, timeout=30) as page:
            return str(page.read().decode(errors="replace"))
    except (OSError, ValueError) as error:
        print(f"skipping find-links {place}: {error}", flush=True)
        return ""


def install(python: Path, requirements: Path, find_links: list[str]) -> None:
    """Install the requirements, then the project, which nothing needs to be downloaded for."""
    links = [f"--find-links={place}" for place in find_links]
    locked = ["--require-hashes", "--no-deps", *links, "-r", str(requirements)]
    project = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    # As pip does: otherwise each of the dozen processes of the services compiles the same modules at its start.
    compiled = [*locked, "--compile-bytecode"]
    if (uv := find_uv(python)) and run([uv, "pip", "install", "--python", str(python), *compiled]):
        if not run([uv, "pip", "install", "--python", str(python), *project]):
            sys.exit("the project itself could not be installed, see above")
        return
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--progress-bar=off"]
    if not (run([*pip, "--quiet", *locked]) and run([*pip, "--quiet", *project])):
        sys.exit("pip could not install the locked environment, see above")


def find_uv(python: Path) -> str | None:
    """Return uv from the PATH, or fetch it into a corner of the environment; None means: use pip."""
    if os.environ.get("TRACKSIDE_INSTALLER") == "pip":
        return None
    if uv := shutil.which("uv"):
        return uv
    corner = python.parents[1] / "tools"
    own = corner / "bin" / "uv"
    fetch = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes"]
    if own.exists() or run([*fetch, f"--target={corner}", "-r", str(UV_LOCK)]):
        return str(own)
    return None


def run(command: list[str]) -> bool:
    """Run a command, showing its first words, and say whether it succeeded."""
    print("+", " ".join(Path(word).name if word.startswith("/") else word for word in command)[:110], flush=True)
    return subprocess.run(command, cwd=ROOT, check=False).returncode == 0


def runs_3_11(python: Path) -> bool:
    """Say whether the environment's interpreter works and is the right one."""
    try:
        done = subprocess.run([python, "-c", "import pip, sys; print(sys.version_info[:2])"], capture_output=True)
    except OSError:
        return False
    return done.stdout.strip() == b"(3, 11)"


def fingerprint(inputs: tuple[Path, ...], target: Path) -> str:
    """Return a text that changes when one of the inputs does, or when the folder has been moved."""
    digest = hashlib.sha256(str(target).encode())
    for path in inputs:
        digest.update(path.read_bytes())
    return digest.hexdigest()


if __name__ == "__main__":
    main()
