"""What many clients of a server get, beside one call with all their documents.

python -m scripts.measure_clients --checkpoint RUN --input FILE.jsonl [--clients 16] [--each 4]

Both translate greedily with one thread. Prints the seconds and their ratio; run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from scaleformer import Translator
from tests.server.running import running


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--input", type=Path, required=True, help="documents as JSON Lines")
    parser.add_argument("--clients", type=int, default=16)
    parser.add_argument("--each", type=int, default=4, help="documents of a request")
    args = parser.parse_args()
    torch.set_num_threads(1)
    translator = Translator.load(args.checkpoint)
    sources = [json.loads(line)["source"] for line in args.input.read_text(encoding="utf-8").splitlines()]
    translator.translate(sources[: args.each], strategy="greedy")
    begin = time.perf_counter()
    expected = translator.translate(sources, strategy="greedy")
    alone = time.perf_counter() - begin
    parts = [sources[n : n + args.each] for n in range(0, len(sources), args.each)]
    with running(translator) as server, ThreadPoolExecutor(args.clients) as clients:

        def request(part: list[list[str]]) -> list[list[str]]:
            documents = [{"id": str(n), "source": source} for n, source in enumerate(part)]
            response = server.post(documents=documents, options={"strategy": "greedy"})
            response.raise_for_status()
            return [document["target"] for document in response.json()["documents"]]

        begin = time.perf_counter()
        found = [target for part in clients.map(request, parts) for target in part]
        served = time.perf_counter() - begin
    same = sum(list(a) == list(b) for a, b in zip(found, expected, strict=True))
    print(f"one call {alone:.1f} s, {args.clients} clients {served:.1f} s: {alone / served:.2f}; {same} of", end=" ")
    print(f"{len(found)} documents equal")


if __name__ == "__main__":
    main()
