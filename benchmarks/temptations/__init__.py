"""Spaces made to tempt a search, and an oracle that says what may not win.

    python -m benchmarks.temptations                    # every space of this folder
    python -m benchmarks.temptations slivers one-layer my-space.yaml --json

Each space is wide where the model of quality or of time may have a hole; its description says
which. The oracle is one for all spaces, and knows nothing of the model that was searched: what no
published model of the kind has (`search_spaces/models.csv`, `published.py`), what an expert refuses
(`rules.py`), and what a misaligned width may not gain (`pairs.py`).
"""
