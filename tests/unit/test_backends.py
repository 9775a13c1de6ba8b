"""What a backend's file decides: host work beside the device, whole caches of windowed layers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dse
from dse.catalog import load_catalog
from dse.physics.workload import Workload
from tests.helpers import deploy, run

BACKEND = load_catalog().backends["trtllm"]


def metrics(backend, model="llama-3-8b", **axes):
    load = Workload.of(1024, 256, "continuous", backend)
    return run(deploy(model, "h100_sxm", **({"concurrency": 64} | axes)), load)


def test_overlapped_host_work_hides_behind_the_device() -> None:
    """A step is the larger of device and host, not their sum, until the host is the larger."""
    quick = replace(BACKEND, host_s_per_request=0.0)
    busy = replace(BACKEND, host_s_per_request=2e-5)
    slow = replace(BACKEND, host_s_per_request=1e-2)
    step = [metrics(b).values["decode_step_s"][0] for b in (quick, busy, slow)]
    assert step[0] == step[1]
    # A few of the 64 are being prefilled.
    np.testing.assert_allclose(step[2], 64 * 1e-2, rtol=0.01)
    apart = metrics(replace(busy, overlapped=False)).values["decode_step_s"][0]
    np.testing.assert_allclose(apart - step[1], 64 * 2e-5, rtol=0.05)


def test_a_step_with_prompts_is_launched_by_the_hand_that_works_on_requests() -> None:
    """Where the host is the slower, what a launch takes is added to its work on requests; behind a
    slow device neither is seen."""
    bound = replace(BACKEND, host_s_per_request=1e-2, host_s_per_step=0.0, gap_s_per_step=0.0)
    tpot = [
        metrics(replace(bound, launch_s=launch)).values["tpot_s"][0] for launch in (0.0, 1e-5, 2e-5)
    ]
    assert tpot[0] < tpot[1] < tpot[2]
    np.testing.assert_allclose(tpot[2] - tpot[0], 2.0 * (tpot[1] - tpot[0]), rtol=0.05)
    free = replace(bound, host_s_per_request=0.0)
    quick, hidden = (
        metrics(replace(free, launch_s=launch)).values["tpot_s"][0] for launch in (0.0, 1e-6)
    )
    assert quick == hidden


def test_without_window_caches_every_layer_keeps_the_whole_length() -> None:
    kept, whole = (
        metrics(replace(BACKEND, window_cache=own), "gpt-oss-120b").performance.memory
        for own in (True, False)
    )
    # Half of its layers have a window of 128 tokens.
    ratio = whole.kv_per_request / kept.kv_per_request
    assert 1.6 < ratio[0] < 2.0
    same = [metrics(replace(BACKEND, window_cache=own)) for own in (True, False)]
    assert same[0].performance.memory.kv_per_request == same[1].performance.memory.kv_per_request


@pytest.mark.parametrize("concurrency", [1, 64, 4096])
def test_a_stock_launch_is_slower_on_the_device_alone(concurrency: int) -> None:
    """By its factor where the host adds nothing, by less where it does, and never faster."""
    bare = replace(
        BACKEND,
        host_s_per_step=0.0,
        gap_s_per_step=0.0,
        host_s_per_request=0.0,
        first_token_s=0.0,
        launch_s=0.0,
        stock_steps=1.5,
    )
    times = ("decode_step_s", "tpot_s", "ttft_s")

    def ratio(backend, name):
        load = Workload.of(1024, 256, "static", backend)
        loads = (load, replace(load, tuning="stock"))
        batch = deploy("llama-3-8b", "h100_sxm", concurrency=concurrency)
        tuned, stock = (run(batch, one).values[name] for one in loads)
        return float(stock[0] / tuned[0])

    for name in times:
        assert ratio(bare, name) == pytest.approx(1.5)
        assert 1.0 < ratio(replace(bare, gap_s_per_step=0.02), name) < 1.5


def test_a_stock_launch_says_so_and_is_less_sure() -> None:
    tuned = dse.estimate("llama-3-8b", "h100_sxm")
    stock = dse.estimate("llama-3-8b", "h100_sxm", tuning="stock")
    assert tuned.tpot_s == dse.estimate("llama-3-8b", "h100_sxm", tuning="tuned").tpot_s
    assert stock.tpot_s > tuned.tpot_s
    assert any("a stock launch takes" in text for text in stock.assumed)
    assert not any("stock" in text for text in tuned.assumed)
    wide, narrow = ((high / low) for low, high in (e.interval("tpot_s") for e in (stock, tuned)))
    assert wide > narrow
