"""AMD Instinct: matrix cores on compute units, grouped into dies (XCDs)."""

from dse.physics import alignment
from dse.rules.families.family import Family
from dse.rules.kinds import MEGATRON, SGLANG, VLLM, Rule

FAMILY = Family(
    "amd",
    "AMD Instinct",
    alignment.AMD,
    "ROCm documentation, AMD Instinct MI300X workload optimization, 2026",
    stacks=(VLLM, SGLANG, MEGATRON),
    # Macro-tiles as on other GPUs, and one larger (assumed).
    tiles=((256.0, 256.0), (256.0, 128.0), (128.0, 256.0), (128.0, 128.0)),
    units="compute units",
    stride_bytes=512.0,
    stride_chips=("cdna3",),
    stride_rule=Rule(
        "stride_hotspot",
        "note",
        "a stride that is a multiple of 512 bytes can crowd one channel of the cache's tags; "
        "libraries avoid it by padding (K + 128), so powers of two are no gain in themselves",
        "ROCm documentation, MI300X workload optimization, GEMM stride issues; no figure published",
        "claimed",
    ),
    notes=(
        "8 dies (XCDs): the vendor says to group tiles in multiples of 8, which libraries do; no "
        "figure is published and none is charged",
    ),
)
