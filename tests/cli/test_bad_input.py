"""What a user gets wrong: a message that names it, an exit code, and never a traceback."""

from __future__ import annotations

import csv
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from dse.schema.study import resolve_space
from dse.study.folder import FRONT, STUDY, read_json
from tests.cli import test_fleet, test_rack, test_serving_flags
from tests.cli.conftest import SMALL, ask, dse
from tests.fuzz.kinds import TRACE

CONFIGS = Path(__file__).parents[1] / "data" / "configs"
ON = ("--chip", "h100_sxm")
CHECK = "catalog spaces check"
MISTAKES = yaml.safe_load((Path(__file__).parent / "mistakes.yaml").read_text(encoding="utf-8"))
READ_BY = {
    "plan": (test_fleet.PLAN, ["fleet"]),
    "space": (SMALL, [CHECK, "run"]),
    "arrivals": (test_serving_flags.SPACE, [CHECK]),
    "rack": (test_rack.OWN, ["catalog racks show"]),
    "claim": ((CONFIGS.parent / "claim.yaml").read_text(encoding="utf-8"), ["claims check"]),
    "tiny": (resolve_space("tiny").read_text(encoding="utf-8"), [CHECK]),
}
with (Path(__file__).parent / "refusals.csv").open(encoding="utf-8", newline="") as stream:
    REFUSALS = list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def place(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished `study` and a trace of `requests.csv`."""
    folder = tmp_path_factory.mktemp("place")
    (folder / "study").symlink_to(tiny)
    (folder / "requests.csv").write_text(TRACE, encoding="utf-8")
    return folder


@pytest.mark.parametrize("row", REFUSALS, ids=[row["command"] for row in REFUSALS])
def test_a_refusal_is_one_line(row: dict[str, str], place: Path, monkeypatch: pytest.MonkeyPatch):
    """Of refusals.csv: nothing is printed or written, and the message says what is wrong."""
    monkeypatch.chdir(place)
    said = dse(*shlex.split(row["command"])[1:])
    assert (said.code, said.out) == (2, "")
    assert row["says"] in said.err
    assert row["and"] in said.err
    message = said.err.rpartition("\nError: ")[2].replace("\n\t", " ")  # below the usage
    assert len(message.strip().splitlines()) == 1
    assert {path.name for path in place.iterdir()} == {"study", "requests.csv"}


@pytest.mark.parametrize(
    "mistake", [(kind, *row) for kind, rows in MISTAKES.items() for row in rows]
)
def test_a_mistake_in_a_file_is_said(
    mistake: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Of mistakes.yaml: every command that reads the file says the same, and writes nothing."""
    kind, old, new, *named = mistake
    text, commands = READ_BY[kind]
    assert old in text
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{kind}.yaml"
    path.write_text(text.replace(old, new, 1) if old else text + new, encoding="utf-8")
    for command in commands:
        said = dse(command, path)
        assert (said.code, said.out) == (2, "")
        assert all(str(path) in line for line in said.err.splitlines())
        assert all(word in said.err for word in named), said.err
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_is_nested_too_deep(space: Callable[..., Path]):
    said = dse("run", space("name: small", "a:\n" + "- " * 1500))
    assert (said.code, said.out) == (2, "")
    assert "nested too deep" in said.err


def test_a_shape_that_never_divides_leaves_nothing_feasible(
    space: Callable[..., Path], tmp_path: Path
):
    path = space("tensor_parallel: [1, 2, 4]", "tensor_parallel: [3, 5]")
    said = dse("run", path, "--out", tmp_path / "out")
    assert said.code == 3
    assert re.search(r" 12 \(\d+\)  heads_divide_by_tensor_parallel: query heads", said.err)


def changed(**keys: Any) -> str:
    config = json.loads((CONFIGS / "llama-3-8b.json").read_text(encoding="utf-8"))
    return json.dumps({**config, **keys})


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[]", "list"),
        ('{"hidden_size": NaN}', "NaN"),
        ('{"a": 1, "a": 2}', "given twice"),
        ("[" * 100_000, "nested too deep"),
        (changed()[:100], "not JSON"),
        (changed(architectures=["FooForCausalLM"]), "LlamaForCausalLM"),
        (changed(hidden_size=-1), "hidden_size: -1"),
        (changed(num_key_value_heads=7), "7 does not divide num_attention_heads"),
        ('{"model_type": "dse"}', "missing"),
        ('{"model_type": "dse", "blocks": 3}', "not a model of this project"),
    ],
)
def test_config_files(tmp_path: Path, text: str, named: str):
    """Of every kind of mistake one; all of them: tests/contract/test_huggingface.py."""
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    for command in (("catalog", "models", "show", path), ("estimate", "--model", path, *ON)):
        said = dse(*command)
        assert said.code == 2
        assert said.out == ""
        assert "config.json" in said.err
        assert named in said.err


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", None), ("hidden_size", None), ("vocab_size", 1.5), ("kv_dtype", "zz"),
        ("training_tokens", "many"), ("training_tokens", -5), ("weight_dtypes", []),
        ("blocks", []), ("blocks", [3]), ("blocks", [{"kind": [], "count": 1}]),
        ("blocks", [{"kind": "foo", "count": 1}]),
    ],
)  # fmt: skip
def test_own_configurations(tiny: Path, tmp_path: Path, key: str, value: object):
    config = {**read_json(tiny, FRONT)["items"][0]["model"], key: value}
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    said = dse("estimate", "--model", path, *ON)
    assert said.code == 2
    assert "mine.json" in said.err


def test_a_study_that_is_a_file(tmp_path: Path):
    path = tmp_path / "file"
    path.touch()
    said = dse("estimate", path, "1")
    assert said.code == 2
    assert "is not a finished study" in said.err


def damage(folder: Path, source: Path, name: str, content: bytes | None) -> None:
    for file in (STUDY, FRONT):
        (folder / file).write_bytes((source / file).read_bytes())
    if content is None:
        document = read_json(source, name)
        document["items"][0]["metrics"] = {}
        content = json.dumps(document).encode()
    (folder / name).write_bytes(content)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (STUDY, b"{"), (STUDY, b"[]"), (STUDY, b"{}"), (STUDY, b"\xff"), (STUDY, b"[" * 100_000),
        (STUDY, b'{"space": 3}'), (FRONT, b""), (FRONT, b"[]"), (FRONT, b"{}"),
        (FRONT, b'{"items": [3]}'), (FRONT, b'{"items": []}'), (FRONT, b'{"items": [{}]}'),
        (FRONT, None),
    ],
)  # fmt: skip
def test_damaged_studies(tiny: Path, tmp_path: Path, name: str, content: bytes | None):
    damage(tmp_path, tiny, name, content)
    for command in (
        ("estimate", tmp_path, "1"),
        ("estimate", "--detail", tmp_path, "1"),
        ("compare", tiny, tmp_path),
        ("run", tmp_path),
    ):
        said = dse(*command)
        assert said.code == 4, command
        assert said.out == ""
        assert name in said.err
        assert "`dse run` writes it anew" in said.err


@pytest.mark.parametrize("below", ["file", "file/deeper"])
def test_unwritable_study_folders(space: Callable[..., Path], tmp_path: Path, below: str):
    (tmp_path / "file").write_text("mine", encoding="utf-8")
    said = dse("run", space(), "--out", tmp_path / below)
    assert said.code == 4
    assert said.out == ""
    assert "as a study folder" in said.err
    assert (tmp_path / "file").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize(
    "storage", ["nope://x", "sqlite:////nonexistent/x.db", "postgresql://localhost:1/x"]
)
def test_storage_that_cannot_be_used(space: Callable[..., Path], tmp_path: Path, storage: str):
    said = dse("run", space(), "--out", tmp_path / "out", "--storage", storage)
    assert said.code == 4
    assert "cannot be used as storage" in said.err


def test_a_journal_that_is_none(space: Callable[..., Path], tmp_path: Path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "journal.log").write_text("my diary\n", encoding="utf-8")
    said = dse("run", space(), "--out", tmp_path / "out")
    assert said.code == 4
    assert (tmp_path / "out" / "journal.log").read_text(encoding="utf-8") == "my diary\n"


HEADER = b"model,chip,serving,metric,prompt_tokens,output_tokens\n"


@pytest.mark.parametrize(
    "content",
    [b"", b"model,chip\na,b\n", bytes(range(256)), "model,chip\né,x\n".encode("latin-1"),
     HEADER + b"\0,,,,,\n", HEADER + b"a,b,c,d,e,f,g,h\n" + b"x" * 3 + b",,,,,,,,,,,\n"],
)  # fmt: skip
def test_points_files(tmp_path: Path, content: bytes):
    path = tmp_path / "in.csv"
    path.write_bytes(content)
    said = dse("estimate", "--points", path, "--out", tmp_path / "out.csv")
    assert said.code == 2
    assert said.out == ""
    assert not (tmp_path / "out.csv").exists()


def test_rows_of_nonsense_are_answered_one_by_one(tmp_path: Path):
    path = tmp_path / "in.csv"
    path.write_bytes(HEADER + b"a,b\n?,,,,,\n,,,,,\n../../x,h100_sxm,static,tpot_s,1,1\n")
    said = ask("estimate", "--points", path, "--out", tmp_path / "out.csv")
    assert said == {"rows": 4, "ok": 0, "infeasible": 0}


@pytest.mark.parametrize("out", ["", "file/out.csv"])
def test_points_that_cannot_be_written(tmp_path: Path, out: str):
    (tmp_path / "file").touch()
    path = tmp_path / "in.csv"
    path.write_bytes(HEADER)
    said = dse("estimate", "--points", path, "--out", tmp_path / out)
    assert said.code == 4
    assert "cannot be written" in said.err


def shell(command: str) -> subprocess.CompletedProcess[str]:
    program = f'dse() {{ {sys.executable} -m dse "$@"; }}; {command}'
    return subprocess.run(
        ["bash", "-c", program], capture_output=True, text=True, check=False, env=os.environ
    )


def test_a_reader_that_goes_away():
    ended = shell("dse catalog models list --json | true; echo ${PIPESTATUS[0]}")
    assert ended.stderr == ""
    assert ended.stdout.strip() in ("0", "1")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk():
    ended = shell("dse catalog models list > /dev/full")
    assert ended.returncode == 4
    assert ended.stderr == "dse: cannot go on: No space left on device\n"


SLIPPED = {
    "memory_bandwidth: 4 GB/s": "4 TB/s was probably meant",
    "memory_bandwidth: 4000 TB/s": "4 TB/s was probably meant",
    "memory_capacity: 96 MB": "96 GB was probably meant",
    "memory_capacity: 96 TB": "96 GB was probably meant",
    "peak_bf16: 900 GFLOP/s": "900 TFLOP/s was probably meant",
    "peak_bf16: 900 PFLOP/s": "900 TFLOP/s was probably meant",
    "peak_fp8: 1800 GFLOP/s": "1.8 PFLOP/s was probably meant",
    "tdp: 700 kW": "700 W was probably meant",
    "tdp: 0.7 W": "700 W was probably meant",
    "tdp: 1e30 W": "is far from any chip of its kind",
}


@pytest.mark.parametrize("slip", SLIPPED)
def test_a_unit_that_slipped_is_said_first(slip: str, tmp_path: Path):
    lines = "peak_bf16: 900 TFLOP/s", "memory_capacity: 96 GB", "memory_bandwidth: 4 TB/s"
    name = slip.partition(":")[0]
    kept = [line for line in (*lines, "tdp: 700 W") if not line.startswith(name)]
    head = ["id: mine", "name: mine", "efficiency: class_gpu", "memory_kind: HBM3"]
    path = tmp_path / "chip.yaml"
    path.write_text("\n".join([*head, *kept, slip]) + "\n", encoding="utf-8")
    said = dse("estimate", "--model", "llama-3-8b", "--chip", path)
    assert said.code == 0, said.err
    words = " ".join(said.out.split())
    assert f"Before you believe it, check mine: {name}:" in words
    assert SLIPPED[slip] in words


@pytest.mark.parametrize(
    ("setting", "meant"),
    [("bandwidth=3.35 GB/s", "3.35 TB/s"), ("scale_up_bandwidth=4.5 MB/s", "4.5 GB/s")],
)
def test_a_hypothetical_figure_that_slipped_is_said_first(setting: str, meant: str):
    said = dse("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", "--set", setting)
    assert f"{meant} was probably meant" in " ".join(said.out.split())


@pytest.mark.parametrize(("price", "meant"), [("2000", "$2"), ("0.0021", "$2.1"), ("2.1", "")])
def test_a_price_far_from_all_others_is_said_first(price: str, meant: str, tmp_path: Path):
    path = tmp_path / "prices.csv"
    path.write_text(
        "chip,basis,usd_per_chip_hour,provider,date,source,note\n"
        f"h100_sxm,rental_3yr,{price},x,2026-06-01,mine,\n",
        encoding="utf-8",
    )
    said = dse("estimate", "--model", "llama-3-8b", "--chip", "h100_sxm", "--prices", path)
    words = " ".join(said.out.split())
    assert ("far from any known price" in words) == bool(meant)
    assert not meant or f"{meant} was probably meant" in words


def test_an_argument_that_holds_a_password_is_not_shown(tmp_path: Path):
    for url in (
        "postgresql://u:sec\x1bret@127.0.0.1:1/db",
        "postgresql//u:secret@h/db",
        "u:secret@h/db",
    ):
        said = dse("run", "tiny", "--storage", url, "--out", tmp_path / "out")
        assert said.code in (2, 4)
        assert "ret@" not in said.out + said.err
