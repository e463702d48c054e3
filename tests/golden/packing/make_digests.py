"""Makes digests.json: packed bytes as the packer made them that wrote one code at a time, straight from layout.h.

`PYTHONPATH=tests python tests/golden/packing/make_digests.py`; only a change of the layout is a reason to run it.
"""

from __future__ import annotations

import json
from pathlib import Path

from helpers.packing_cases import cases, packed_digest

if __name__ == "__main__":
    digests = {name: packed_digest(matrix) for name, matrix in cases()}
    Path(__file__).with_name("digests.json").write_text(json.dumps(digests, indent=1) + "\n")
