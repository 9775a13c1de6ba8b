"""The wheel as a user has it: installed elsewhere, run from `/`, without the checkout."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email import message_from_string
from email.message import Message
from importlib.metadata import distribution
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DEVELOPMENT = (
    "tests/",
    "benchmarks/",
    "tools/",
    "docs/",
    ".ci",
    "Makefile",
    "pyproject.toml",
    "reports/",
)
# The module of a distribution where the names differ; sqlalchemy comes with optuna,
# markupsafe with jinja2, and torch is an extra.
MODULES = {"pyyaml": "yaml"}
BESIDE = {"dse", "sqlalchemy", "markupsafe", "torch"}


def run(*arguments: object, folder: Path = Path("/")) -> subprocess.CompletedProcess[str]:
    """A command that must succeed, without this checkout on the path of modules."""
    environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "COLUMNS")}
    ended = subprocess.run(
        [str(argument) for argument in arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the checkout; with hatchling of this environment where it is installed."""
    out = tmp_path_factory.mktemp("wheel")
    here = ["--no-isolation"] if find_spec("hatchling") else []
    run(sys.executable, "-m", "build", "--wheel", *here, "--outdir", out, ROOT)
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def dse(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `dse` of a new environment that holds the wheel; what it depends on is borrowed from
    this one, without the checkout that is installed here in place."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False)
    binaries = folder / "bin"
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    site = folder / "lib" / f"python{version}" / "site-packages"
    run(
        *(sys.executable, "-m", "pip", "--python", binaries / "python", "install", "--quiet"),
        *("--disable-pip-version-check", "--no-deps", "--no-index", wheel),
    )
    # A path file of a borrowed folder is not read, and with it not the one that leads here.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return binaries / "dse"


def test_the_wheel_holds_the_package_its_data_and_nothing_else(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert all(name.startswith(("dse/", "dse_optimizer-")) for name in names)
    assert not [name for name in names if any(word in name for word in DEVELOPMENT)]
    inside = {name.removeprefix("dse/_data/") for name in names if name.startswith("dse/_data/")}
    for folder, pattern in (("hardware", "**/*.*"), ("search_spaces", "**/*.yaml")):
        files = {str(path.relative_to(ROOT)) for path in (ROOT / folder).glob(pattern)}
        assert files
        assert files <= inside
    assert {"hardware/prices.csv", "search_spaces/models.csv"} <= inside
    package = {str(path.relative_to(ROOT)) for path in (ROOT / "dse").glob("**/*.py")}
    assert package <= set(names)
    assert {"dse/render/templates/answer.html", "dse/py.typed"} <= set(names)


def metadata_of(wheel: Path) -> Message:
    """Name, dependencies and extras of the package, as an installer reads them."""
    archive = zipfile.ZipFile(wheel)
    (metadata,) = (name for name in archive.namelist() if name.endswith("METADATA"))
    return message_from_string(archive.read(metadata).decode())


def test_the_package_says_what_it_is_and_names_the_licences_of_what_it_needs(wheel: Path):
    metadata = metadata_of(wheel)
    assert metadata["Name"] == "dse-optimizer"
    assert metadata["License-Expression"] is None  # the owner has chosen none
    assert "Typing :: Typed" in metadata.get_all("Classifier", [])
    needed = {
        re.split(r"[^\w-]", line)[0]
        for line in metadata.get_all("Requires-Dist", [])
        if "extra == 'dev'" not in line
    }
    page = (ROOT / "docs" / "licences.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^\| ([\w-]+)[^|]* \| (?:all|`.*`) \| (.+) \|$", page, re.M))
    assert {name.lower() for name in listed} == {name.lower() for name in needed}
    for name, licence in listed.items():
        if find_spec(MODULES.get(name.lower(), name.lower())) is not None:
            stated = distribution(name).metadata.get("License-Expression")
            assert stated in (None, licence), name


def test_every_import_is_declared(wheel: Path):
    archive = zipfile.ZipFile(wheel)
    lines = metadata_of(wheel).get_all("Requires-Dist", [])
    needed = [re.split(r"[^\w-]", line)[0] for line in lines if ";" not in line]
    known = {MODULES.get(name.lower(), name.lower()) for name in needed} | BESIDE
    imported = set()
    for name in archive.namelist():
        for node in ast.walk(ast.parse(archive.read(name)) if name.endswith(".py") else ast.Pass()):
            if isinstance(node, ast.Import):
                imported |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                imported.add(node.module.split(".")[0])
    assert imported - known - sys.stdlib_module_names == set()
    assert known - BESIDE <= imported


def test_data_is_found_inside_the_package(dse: Path):
    program = "import dse, dse.data; print(dse.__file__); print(dse.data.data_root())"
    package, data = run(dse.parent / "python", "-I", "-c", program).stdout.split()
    assert str(ROOT) not in package + data
    assert data == str(Path(package).parent / "_data")


@pytest.mark.parametrize(
    "command", ["catalog chips list", "catalog spaces list", "check llama-3-8b --chip h100_sxm"]
)
def test_no_command_reads_yaml(
    dse: Path, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The wheel brings its files compiled: the first command is as quick as any other."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    program = f"""
import sys
from dse.cli import main
main({command.split()!r})
print("yaml" in sys.modules, file=sys.stderr)
"""
    ended = run(dse.parent / "python", "-I", "-c", program)
    assert ended.stderr == "False\n"
    assert not any(tmp_path.iterdir())


def test_commands_from_the_root_folder(dse: Path, tmp_path: Path):
    assert run(dse, "--version").stdout.startswith("dse ")
    assert "quickstart" in run(dse, "catalog", "spaces", "list").stdout
    point = ("--model", "llama-3-8b", "--chip", "h100_sxm", "--json")
    assert json.loads(run(dse, "estimate", *point).stdout)["feasible"]
    study = tmp_path / "study"
    document = json.loads(run(dse, "run", "tiny", "--out", study, "--json").stdout)
    assert document["front_size"] > 10
    assert (study / "report.html").stat().st_size > 1_000_000
    assert json.loads(run(dse, "estimate", study, "knee", "--json").stdout)["feasible"]
    assert run(dse, "run", study).stdout.strip().endswith(str(study / "report.html"))


# What the README does, as a program of one's own; the comment says what a checker must see.
CONSUMER = """\
import dse

catalog = dse.load_catalog(as_of="2026-10-01")  # Catalog
point = dse.estimate("llama-3-70b", "h100_sxm", tp=8, catalog=catalog)  # PointAnswer
study = dse.run("tiny", catalog=catalog, seed=1)  # Study
front = study.front.to_pandas()  # DataFrame
changed = dse.whatif(study, {"chip.h100_sxm.price": "-20%"})  # Answer
page = changed.to_html("whatif.html")  # str
plan = dse.fleet("dense-70b-billion-tokens", catalog=catalog).headline  # str
dse.estimat("llama-3-70b", "h100_sxm")  # "estimat" is not a known attribute of module "dse"
"""


def test_a_program_that_uses_the_package_is_checked(dse: Path, tmp_path: Path):
    """Of the wheel: names have types, none of them Any, and a misspelt one is an error."""
    lines = CONSUMER.splitlines()
    seen = [name for line in lines if (name := re.match(r"(\w+) =", line))]
    program = tmp_path / "program.py"
    program.write_text(CONSUMER + "".join(f"reveal_type({name[1]})\n" for name in seen))
    checked = subprocess.run(
        [sys.executable, "-m", "pyright", "--pythonpath", dse.parent / "python", program.name],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    types = dict(re.findall(r'Type of "(\w+)" is "(.+)"', checked))
    for name in seen:
        assert types[name[1]] == name.string.split("# ")[1], checked
    (error,) = re.findall(r"error: (.+?) \(", checked)
    assert lines[-1].endswith(f"# {error}")
