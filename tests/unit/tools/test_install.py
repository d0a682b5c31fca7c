import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

LOCK = """\
# made by a tool
numpy==2.4.6 \\
    --hash=sha256:aa
nvidia-cublas==13.1 \\
    --hash=sha256:bb \\
    --hash=sha256:cc
cuda-bindings==13.5 \\
    --hash=sha256:dd
torch==2.13.0 \\
    --hash=sha256:ee
torchdata==0.11 \\
    --hash=sha256:ff
triton==3.7.1 \\
    --hash=sha256:00
zipp==4.1 \\
    --hash=sha256:11
"""
CPU_LOCK = "# why\ntorch==2.13.0+cpu --hash=sha256:22\n"
WHEEL = "torch-2.13.0+cpu-cp311-cp311-manylinux_2_28_x86_64.whl"


@pytest.fixture(scope="module")
def install():
    spec = importlib.util.spec_from_file_location("install", ROOT / "tools" / "install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_without_a_gpu_the_offered_cpu_wheel_replaces_cuda(install):
    requirements = install.choose_requirements(LOCK, CPU_LOCK, has_gpu=False, offered=WHEEL)

    assert [line.split(" ")[0] for line in requirements.splitlines() if "==" in line] == [
        "numpy==2.4.6",
        "torchdata==0.11",
        "zipp==4.1",
        "torch==2.13.0+cpu",
    ]


def test_hashes_go_with_their_package(install):
    kept = install.without_cuda(LOCK)

    assert [end for end in ("aa", "bb", "cc", "dd", "ee", "ff", "00", "11") if f"sha256:{end}" in kept] == [
        "aa",
        "ff",
        "11",
    ]


@pytest.mark.parametrize(("has_gpu", "offered"), [(True, WHEEL), (False, ""), (False, WHEEL.replace("13", "12"))])
def test_the_lock_is_used_as_it_is_with_a_gpu_or_without_the_wheel(install, has_gpu, offered):
    assert install.choose_requirements(LOCK, CPU_LOCK, has_gpu, offered) == LOCK


def test_the_wheel_is_found_in_a_folder(install, tmp_path):
    (tmp_path / WHEEL).touch()

    assert WHEEL in install.offers([str(tmp_path)])
    assert WHEEL in install.offers([f"file://{tmp_path}"])


def test_the_wheel_is_found_on_a_page_that_quotes_the_plus(install, tmp_path):
    page = tmp_path / "index.html"
    page.write_text(f"<a href='x/{WHEEL.replace('+', '%2B')}'>torch</a>")

    assert WHEEL in install.offers([str(page)])
    assert WHEEL in install.offers([page.as_uri()])


def test_a_place_that_does_not_exist_is_skipped(install, tmp_path):
    assert install.offers([str(tmp_path / "gone")]) == ""


def test_find_links_are_read_from_the_configuration_and_the_variable(install):
    listing = "global.index-url='https://host/simple'\nglobal.find-links='/a\\n/b'\n:env:.find-links='/c'"

    assert install.parse_find_links(listing, "/c /d") == ["/c", "/d", "/a", "/b"]


def test_the_real_lock_pins_torch_for_both_profiles(install):
    lock, cpu_lock = (ROOT / "requirements.lock").read_text(), (ROOT / "requirements-cpu.lock").read_text()

    cpu = install.choose_requirements(lock, cpu_lock, has_gpu=False, offered=WHEEL)

    assert "\ntorch==2.13.0 \\" in lock
    assert "\nnvidia-cudnn" in lock
    assert "\ntorch==2.13.0+cpu --hash" in cpu
    assert "nvidia" not in cpu.split("# torch without CUDA")[0].split("\n", 5)[-1]


def test_every_requirement_of_the_lock_has_a_hash(install):
    blocks = (ROOT / "requirements.lock").read_text().replace("\\\n", " ").splitlines()
    requirements = [block for block in blocks if block and not block.startswith("#")]

    assert len(requirements) > 200
    assert [block for block in requirements if "--hash=sha256:" not in block] == []


def test_a_change_of_an_input_changes_the_fingerprint(install, tmp_path):
    path = tmp_path / "lock"
    path.write_text("a==1")
    before = install.fingerprint((path,), tmp_path)

    path.write_text("a==2")

    assert install.fingerprint((path,), tmp_path) != before
    assert install.fingerprint((path,), tmp_path / "elsewhere") != install.fingerprint((path,), tmp_path)
