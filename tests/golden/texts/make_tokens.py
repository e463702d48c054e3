"""Makes tokens.json: the first token ids of numerics.txt under the tokenizer of each test model.

    python tests/golden/texts/make_tokens.py smollm2-135m=FILE.gguf gemma3-270m=FILE.gguf …

The ids come from `transformers`, which builds its tokenizer from the GGUF metadata, so tests of quality do
not lean on Isobit's tokenizer. Made with transformers 5.24.0, tokenizers 0.23.3, gguf 0.19.0; the ids of
llama.cpp are the same.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
from helpers.oracle import one_gguf_reader, quiet

FOLDER = Path(__file__).parent
NUM_TOKENS = 1024  # past the sliding window of Gemma 3 (512); a bound of 99.9 % allows one miss


def make_tokens(path: Path, text: str) -> list[int]:
    with quiet(), one_gguf_reader():
        from transformers import AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name, local_files_only=True)
    ids: list[int] = tokenizer(text)["input_ids"][:NUM_TOKENS]
    if len(ids) < NUM_TOKENS:
        raise ValueError(f"{path.name}: {len(ids)} tokens, expected {NUM_TOKENS}: make the text longer")
    return ids


def main() -> None:
    text = (FOLDER / "numerics.txt").read_text(encoding="utf-8")
    models = (argument.split("=", 1) for argument in sys.argv[1:])
    tokens = {name: make_tokens(Path(file), text) for name, file in models}
    lines = (f'  "{name}": {json.dumps(ids, separators=(",", ":"))}' for name, ids in sorted(tokens.items()))
    (FOLDER / "tokens.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
