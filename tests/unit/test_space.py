"""The space language: values, ratios, conditions, and every mistake with its line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dse.errors import InputError
from dse.schema import dtypes
from dse.schema.axes import AXES
from dse.schema.metrics import METRICS, parse_constraint
from dse.schema.study import Study, load_study, resolve_space
from dse.space.space import Space
from tests import helpers_files
from tests.helpers_files import write

DENSE = """\
name: sample
workload: {prompt_tokens: 1024, output_tokens: 256, serving: continuous, backend: current}
price_basis: rental_3yr
training_tokens: 15T
model:
  vocab_size: 128256
  hidden_size: {from: 2048, to: 4096, multiple_of: 1024}
  num_hidden_layers: [16, 32]
  head_dim: 128
  num_attention_heads: {ratio_of: hidden_size / head_dim, values: [1, 2]}
  num_key_value_heads: 8
  intermediate_size: {ratio_of: hidden_size, values: [8/3, 3.5], multiple_of: 256}
deployment:
  chip: [h100_sxm, h200_sxm]
  chips: 8
  tensor_parallel: {from: 1, to: 8, powers_of: 2}
  weight_dtype: [bf16, fp8]
  kv_dtype: bf16
  concurrency: 64
objectives: {predicted_loss: minimize, tpot_s: minimize}
constraints: [ttft_s <= 2 s, tpot_s <= 30 ms]
"""
SPARSE = (
    DENSE.replace(
        """multiple_of: 256}
deployment:""",
        """multiple_of: 256, when: {sparse: false}}
  num_experts: [64, 128]
  num_experts_per_tok: 8
  moe_intermediate_size: {ratio_of: hidden_size, values: [1/4], multiple_of: 128}
deployment:""",
    )
    .replace("  hidden_size: {", "  sparse: [false, true]\n  hidden_size: {", 1)
    .replace(
        "  weight_dtype",
        "  expert_parallel: {values: [1, 8], when: {sparse: true}}\n  weight_dtype",
    )
)


def read(tmp_path: Path, text: str) -> Study:
    return load_study(write(tmp_path, text))


def mistakes(tmp_path: Path, text: str) -> list[InputError]:
    errors = helpers_files.mistakes(read, tmp_path, text)
    assert all(error.file and error.line for error in errors)
    return errors


def test_values_of_a_dense_space(tmp_path: Path) -> None:
    space = Space.of(read(tmp_path, DENSE))
    assert space.size == 3 * 2 * 2 * 2 * 2 * 4 * 2
    values = space.values(space.unrank(np.arange(space.size)))
    assert set(values["hidden_size"]) == {2048.0, 3072.0, 4096.0}
    assert set(values["tensor_parallel"]) == {1.0, 2.0, 4.0, 8.0}
    heads_per_width = values["num_attention_heads"] * 128 / values["hidden_size"]
    assert set(heads_per_width) == {1.0, 2.0}
    # 8/3 x 4096 = 10922.67 lies nearest to 43 x 256; 8/3 x 2048 = 5461.33 to 21 x 256.
    widest = values["hidden_size"] == 4096
    assert set(values["intermediate_size"][widest]) == {11008.0, 14336.0}
    narrow = values["hidden_size"] == 2048
    assert set(values["intermediate_size"][narrow]) == {5376.0, 7168.0}
    assert set(values["weight_dtype"]) == {dtypes.CODE["bf16"], dtypes.CODE["fp8"]}
    assert {space.chips[code] for code in values["chip"]} == {"h100_sxm", "h200_sxm"}
    assert set(values["tied_embeddings"]) == {0.0}
    assert set(values["data_parallel"]) == {1.0}


def test_axes_that_do_not_count(tmp_path: Path) -> None:
    space = Space.of(read(tmp_path, SPARSE))
    shared = 3 * 2 * 2 * 2 * 4 * 2
    assert space.size == shared * (2 + 2 * 2)
    values = space.values(space.unrank(np.arange(space.size)))
    dense = values["sparse"] == 0
    assert int(dense.sum()) == shared * 2
    for name in ("num_experts", "num_experts_per_tok", "moe_intermediate_size"):
        assert set(values[name][dense]) == {0.0}
        assert (values[name][~dense] > 0).all()
    assert set(values["intermediate_size"][~dense]) == {0.0}
    assert set(values["expert_parallel"][dense]) == {1.0}
    assert set(values["expert_parallel"][~dense]) == {1.0, 8.0}


def test_values_ignore_what_an_idle_axis_holds(tmp_path: Path) -> None:
    space = Space.of(read(tmp_path, SPARSE))
    index = np.tile(space.cardinalities - 1, (2, 1))
    index[0, space.names.index("sparse")] = 0
    plain, canonical = space.values(index), space.values(space.canonical(index))
    for name in space.names:
        assert np.array_equal(plain[name], canonical[name])
    assert space.rank(index).tolist() == space.rank(space.canonical(index)).tolist()


def test_small_ratio_gives_one_multiple(tmp_path: Path) -> None:
    text = DENSE.replace("[8/3, 3.5], multiple_of: 256", "[0.001], multiple_of: 256")
    space = Space.of(read(tmp_path, text))
    assert set(space.values(space.unrank(np.arange(4)))["intermediate_size"]) == {256.0}


def test_ratio_may_stand_before_what_it_needs(tmp_path: Path) -> None:
    line = "  intermediate_size: {ratio_of: hidden_size, values: [8/3, 3.5], multiple_of: 256}\n"
    moved = DENSE.replace(line, "").replace("model:\n", "model:\n" + line)
    first, second = read(tmp_path, DENSE), read(tmp_path, moved)
    assert [axis.name for axis in first.axes] == [axis.name for axis in second.axes]


def test_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    first = read(tmp_path, DENSE)
    reordered = DENSE.replace("name: sample\n", "# a comment\n") + "name: other\ntitle: T\n"
    reordered = reordered.replace(
        "{predicted_loss: minimize, tpot_s: minimize}",
        "{tpot_s: minimize, predicted_loss: minimize}",
    ).replace("[16, 32]", "{from: 16, to: 32, powers_of: 2}")
    second = read(tmp_path, reordered)
    assert first.fingerprint == second.fingerprint
    assert first.objectives == second.objectives
    changes = [
        ("[16, 32]", "[16, 33]"),
        ("tpot_s <= 30 ms", "tpot_s <= 31 ms"),
        ("15T", "14T"),
        ("output_tokens: 256", "output_tokens: 257"),
        ("predicted_loss: minimize", "predicted_loss: maximize"),
        ("chips: 8", "replicas: 8"),
        ("[8/3, 3.5]", "[8/3, 3.6]"),
    ]
    prints = {read(tmp_path, DENSE.replace(*change)).fingerprint for change in changes}
    assert len(prints | {first.fingerprint}) == len(changes) + 1


def test_units_end_at_the_edge(tmp_path: Path) -> None:
    study = read(tmp_path, DENSE)
    assert study.training_tokens == 15e12
    assert [(c.metric, c.operator, c.limit) for c in study.constraints] == [
        ("ttft_s", "<=", 2.0),
        ("tpot_s", "<=", 0.03),
    ]
    assert study.workloads[0].backend == "generic"


def test_fixed_model(tmp_path: Path) -> None:
    start, rest = DENSE.split("model:\n")
    text = start.replace("training_tokens: 15T\n", "") + "model: llama-3-70b\ndeployment:\n"
    study = read(tmp_path, text + rest.split("deployment:\n")[1])
    assert study.model == "llama-3-70b"
    assert study.model_axes == ()
    assert "hidden_size" not in Space.of(study).names
    errors = mistakes(
        tmp_path,
        text.replace("llama-3-70b", "llama-3-70") + rest.split("deployment:\n")[1],
    )
    assert [error.field for error in errors] == ["model"]
    assert "llama-3-70b" in str(errors[0])


def test_a_workload_is_written_in_full(tmp_path: Path) -> None:
    errors = mistakes(tmp_path, DENSE.replace(DENSE.splitlines()[1], "workload: chat"))
    assert [(error.field, error.line) for error in errors] == [("workload", 2)]


@pytest.mark.parametrize(
    ("serving", "old", "new", "field"),
    [
        ("continuous", "[ttft_s <= 2 s", "[ttft_p99_s <= 2 s", "constraints[0]"),
        ("continuous", "tpot_s: minimize", "utilisation: minimize", "objectives.utilisation"),
        ("offline", "tpot_s: minimize", "ttft_s: minimize", "objectives.ttft_s"),
        ("offline", "[ttft_s <= 2 s", "[tpot_s <= 2 s, ttft_s <= 2 s", "constraints[1]"),
    ],
)
def test_a_metric_that_the_serving_does_not_have(
    tmp_path: Path, serving: str, old: str, new: str, field: str
) -> None:
    text = DENSE.replace("serving: continuous", f"serving: {serving}").replace(old, new)
    errors = [error for error in mistakes(tmp_path, text) if error.field == field]
    assert len(errors) == 1
    assert f"means nothing with serving {serving}" in str(errors[0])


def test_a_metric_that_one_of_the_servings_has(tmp_path: Path) -> None:
    loads = """workloads:
  - {name: chat, weight: 1, prompt_tokens: 1024, output_tokens: 256, serving: continuous}
  - {name: night, weight: 1, prompt_tokens: 1024, output_tokens: 256, serving: offline%s}"""
    text = DENSE.replace("tpot_s <= 30 ms", "tpot_s <= 90 ms")
    assert read(tmp_path, text.replace(DENSE.splitlines()[1], loads % "")).constraints
    own = text.replace(DENSE.splitlines()[1], loads % ", constraints: [ttft_s <= 1 s]")
    assert [error.field for error in mistakes(tmp_path, own)] == ["workloads[1].constraints[0]"]


def test_resolve_space(tmp_path: Path) -> None:
    assert resolve_space("quickstart").name == "quickstart.yaml"
    own = write(tmp_path, "name: own\n")
    assert resolve_space(str(own)) == own
    with pytest.raises(InputError, match="did you mean quickstart"):
        resolve_space("quikstart")


def test_all_mistakes_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    text = DENSE.replace("head_dim: 128", "head_dim: 0").replace("fp8", "fp9")
    text = text.replace("tpot_s <= 30 ms", "tpot_s <= 30").replace("continuous", "contin")
    errors = mistakes(tmp_path, text)
    assert [error.line for error in errors] == [2, 9, 17, 21]


def test_space_beyond_64_bits(tmp_path: Path) -> None:
    wide = "{from: 1, to: 10000, multiple_of: 1}"
    text = DENSE
    for old in ("[16, 32]", "chips: 8", "concurrency: 64", "head_dim: 128", "_heads: 8"):
        text = text.replace(old, f"{old.split(':')[0]}: {wide}" if ":" in old else wide)
    with pytest.raises(InputError, match="points"):
        Space.of(read(tmp_path, text))


def test_sample_sees_small_branches(tmp_path: Path) -> None:
    space = Space.of(read(tmp_path, SPARSE))
    index = space.sample(np.random.default_rng(0), 60)
    sparse = space.values(index)["sparse"]
    assert int(sparse.sum()) == 30
    assert len(np.unique(space.rank(index))) == 60


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("usd_per_million_total_tokens <= 2.5 usd/Mtoken", 2.5),
        ("output_tokens_per_s_per_user >= 50 tokens/s", 50.0),
        ("joules_per_output_token <= 300 mJ", 0.3),
        ("mfu >= 40 %", 0.4),
        ("predicted_loss <= 1.95", 1.95),
        ("memory_bytes_per_chip <= 80 GiB", 80 * 2.0**30),
        ("active_parameters <= 30B", 30e9),
        ("chips <= 16", 16.0),
        ("chip_usd_per_hour <= 3 USD/h", 3.0),
    ],
)
def test_limits(text: str, limit: float) -> None:
    constraint = parse_constraint(text)
    assert constraint.limit == pytest.approx(limit, rel=1e-12)
    assert constraint.text == text
    assert constraint.metric in METRICS


@pytest.mark.parametrize(
    "text",
    ["usd_per_million_total_tokens <= 2.5", "joules_per_output_token <= 3 W", "mfu >= nan",
     "predicted_loss <= 2 s", "tpot_s <= 1e999 s", "mfu <= 1e999", "tpot_s", "", "tpot_s <= -1 s"],
)  # fmt: skip
def test_wrong_limits(text: str) -> None:
    with pytest.raises(InputError):
        parse_constraint(text)


@pytest.mark.parametrize(
    ("written", "loss", "tpot"),
    [
        ("", (0.001, False, "0.001 nats"), (0.005, True, "0.5%")),
        ("resolution: 0", (0.0, False, "0"), (0.0, False, "0")),
    ],
)
def test_resolution(tmp_path: Path, written: str, loss: tuple, tpot: tuple) -> None:
    plain = read(tmp_path, DENSE)
    found = read(tmp_path, f"{DENSE}{written}\n")
    steps = [one.resolution for one in found.objectives]
    assert [(one.step, one.relative, one.text) for one in steps] == [loss, tpot]
    assert found.fingerprint == plain.fingerprint


def test_the_resolution_of_a_share_is_in_points(tmp_path: Path) -> None:
    found = read(tmp_path, DENSE.replace("predicted_loss: minimize", "mfu: maximize"))
    steps = {one.metric: (one.resolution.step, one.resolution.relative) for one in found.objectives}
    assert steps["mfu"] == (0.005, False)


@pytest.mark.parametrize(
    ("written", "weights", "best", "limits"),
    [
        ("", (0.5, 0.5), "", []),
        ("wish: fastest at predicted_loss <= 2.1", (0.0, 1.0), "tpot_s", ["predicted_loss <= 2.1"]),
        ("wish: best loss at tpot_s <= 20 ms", (1.0, 0.0), "predicted_loss", ["tpot_s <= 20 ms"]),
        ("wish: lowest tpot_s", (0.0, 1.0), "tpot_s", []),
    ],
)
def test_wish(tmp_path: Path, written: str, weights: tuple, best: str, limits: list[str]) -> None:
    found = read(tmp_path, f"{DENSE}{written}\n")
    assert (found.wish.weights, found.wish.best) == (weights, best)
    assert [limit.text for limit in found.wish.limits] == limits
    assert found.fingerprint == read(tmp_path, DENSE).fingerprint


def test_a_shape_is_trained_in_the_formats_that_a_configuration_may_name() -> None:
    assert AXES["trained_in"].names == dtypes.TRAINABLE
