"""A server under mixed load: requests in order have to be answered, whatever others do to it.

python -m scripts.soak_server --checkpoint RUN --output FILE.json [--minutes 30] [--clients 8] [KEY=VALUE of serve ...]

Clients send documents, texts, files and streams and compare each answer with the first one of the same request; others
vanish while they wait or while they send, send bodies of 50 MB, malformed ones, files that unpack to absurd sizes, and
options beyond the limits. Exit code 1 where an answer differed or was lost, a refusal had another status, its error was
no single line, the server wrote a traceback, used more than 5% more memory in the last fifth of the time than in the
one after its first fifth, or did not end in order. Leaves FILE.json.
"""

from __future__ import annotations

import argparse
import gzip
import io
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from scaleformer.system.errors import one_line_errors
from scripts.soak import resident

GROWTH = 0.05
BUSY = (429, 503)


def bomb() -> bytes:
    """A Word document of some kilobytes whose text has 200 MB."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("[Content_Types].xml", "<Types/>")
        archive.writestr("word/document.xml", b"<w:t>" + b"a" * 200_000_000)
    return packed.getvalue()


ENTITIES = (
    b'<?xml version="1.0"?><!DOCTYPE x [<!ENTITY a "aaaaaaaa"><!ENTITY b "&a;&a;&a;&a;">]><xliff><x>&b;</x></xliff>'
)


class Load:
    """What clients ask of the server at `url`, and what they were answered: counts by kind, and what was wrong."""

    def __init__(self, url: str, sources: list[str], seed: int) -> None:
        self.url, self.sources, self.seed = url, sources, seed
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.first: dict[str, Any] = {}  # answers by request
        self.stop = threading.Event()
        self._lock = threading.Lock()
        self._bomb = bomb()

    def run(self, number: int) -> None:
        """One client, until it has to stop."""
        rng = random.Random(self.seed * 1000 + number)
        kinds = [
            self.documents,
            self.text,
            self.stream,
            self.file,
            self.n_best,
            self.vanish,
            self.break_off,
            self.refused,
        ]
        weights = [6, 3, 3, 3, 2, 3, 1, 2]
        with httpx.Client(base_url=self.url, timeout=600, trust_env=False) as client:
            while not self.stop.is_set():
                kind = rng.choices(kinds, weights)[0]
                try:
                    kind(client, rng)
                except Exception as error:
                    self.wrong.append(f"{kind.__name__}: {type(error).__name__}: {error}")
                self.counts[kind.__name__] += 1

    def texts(self, rng: random.Random) -> list[str]:
        """Some segments; few lists, so that requests come again."""
        start = rng.randrange(20)
        return [self.sources[(start + i) % len(self.sources)] for i in range(1 + start % 7)]

    def check(self, key: str, answer: Any) -> None:
        """The same request has the same answer."""
        with self._lock:
            if self.first.setdefault(key, answer) != answer:
                self.wrong.append(f"{key[:200]}: {str(answer)[:200]} after {str(self.first[key])[:200]}")

    def answered(self, response: httpx.Response, status: tuple[int, ...] = (200,)) -> bool:
        """Whether there is an answer to compare; a server that is busy says so in one line."""
        if response.status_code == 200 and 200 in status:
            return True
        content = response.json()
        if set(content) != {"error"} or "\n" in content["error"]:
            self.wrong.append(f"error of several lines: {content}")
        if response.status_code not in (*status, 429):
            self.wrong.append(f"{response.request.url.path}: {response.status_code} {content}, wanted {status}")
        self.counts[f"status {response.status_code}"] += 1
        return False

    def documents(self, client: httpx.Client, rng: random.Random) -> None:
        body = {"documents": [{"id": str(n), "source": self.texts(rng)} for n in range(rng.choice((1, 1, 5)))]}
        response = client.post("/translate", json=body)
        if self.answered(response):
            for document, answer in zip(body["documents"], response.json()["documents"], strict=True):
                self.check(json.dumps(document["source"]), answer["target"])

    def text(self, client: httpx.Client, rng: random.Random) -> None:
        text = "\n\n".join(self.texts(rng))
        response = client.post("/translate", json={"documents": [{"id": "text", "text": text}]})
        if self.answered(response):
            self.check(f"text {text}", response.json()["documents"][0]["text"])

    def n_best(self, client: httpx.Client, rng: random.Random) -> None:
        body = {"documents": [{"id": "n", "source": self.texts(rng)[:1]}]}
        body["options"] = {"strategy": "beam", "beam_size": 4, "n_best": 3}  # type: ignore[assignment]
        response = client.post("/translate", json=body)
        if self.answered(response):
            [document] = response.json()["documents"]
            self.check(f"n_best {body['documents']}", [one["target"] for one in document["n_best"]])

    def stream(self, client: httpx.Client, rng: random.Random) -> None:
        source, found, ended = self.texts(rng), {}, False
        body = {"documents": [{"id": "0", "source": source}], "options": {"strategy": "greedy"}}
        gone = rng.random() < 0.3
        with client.stream("POST", "/translate/stream", json=body) as response:
            if response.status_code != 200:
                response.read()
                self.answered(response)
                return
            for line in response.iter_lines():
                if line.startswith("data: "):
                    data = json.loads(line.removeprefix("data: "))
                    if "segment" in data:
                        found[data["segment"]] = data["target"]
                        if gone:
                            self.counts["streams left"] += 1
                            return
                    ended = ended or "timing" in data
                    if "target" in data and isinstance(data["target"], list):
                        self.check(f"stream {source}", data["target"])
                        if any(data["target"][place] != text for place, text in found.items()):
                            self.wrong.append(f"segments differ from their document: {source}")
        if not ended:
            self.wrong.append(f"a stream broke off: {source}")

    def file(self, client: httpx.Client, rng: random.Random) -> None:
        texts = self.texts(rng)
        content = f"# {texts[0]}\n\n" + "\n".join(f"- *{text}* `x`" for text in texts) + "\n"
        response = client.post("/translate/file", files={"file": ("a.md", content.encode())})
        if self.answered(response):
            self.check(content, response.text)

    def vanish(self, client: httpx.Client, rng: random.Random) -> None:
        """Go before the answer is there."""
        body = json.dumps({"documents": [{"source": self.sources[:30]}]}).encode()
        self.send("/translate", body, len(body), rng.random() * 2)

    def break_off(self, client: httpx.Client, rng: random.Random) -> None:
        """Go in the middle of the body."""
        self.send("/translate/file", b'{"documents": [', 5000, rng.random())

    def send(self, path: str, body: bytes, length: int, seconds: float) -> None:
        host, port = self.url.removeprefix("http://").split(":")
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(head.encode() + body)
            self.stop.wait(seconds)

    def refused(self, client: httpx.Client, rng: random.Random) -> None:
        """What no server should swallow."""
        json_type = {"Content-Type": "application/json"}
        choice = rng.randrange(7)
        if choice == 0:
            response, status = client.post("/translate", content=b"x" * 50_000_000, headers=json_type), 413
        elif choice == 1:
            nonsense = bytes(rng.randrange(256) for _ in range(rng.randrange(300)))
            response, status = client.post("/translate", content=nonsense, headers=json_type), 422
        elif choice == 2:
            response, status = client.post("/translate", content=b"[" * 200_000, headers=json_type), 422
        elif choice == 3:
            response, status = client.post("/translate/file", files={"file": ("a.docx", self._bomb)}), 422
        elif choice == 4:
            response, status = client.post("/translate/file", files={"file": ("a.xliff", ENTITIES)}), 422
        elif choice == 5:
            packed = gzip.compress(b"a" * 10_000_000)
            response, status = client.post("/translate/file", files={"file": ("a.txt.gz", packed)}), 422
        else:
            body = {"documents": [{"source": ["a"]}], "options": {"beam_size": 1000}}
            response, status = client.post("/translate", json=body), 422
        self.answered(response, (status, 400) if status == 422 else (status,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("settings", nargs="*")
    args = parser.parse_args()
    words = [sys.executable, "-m", "scaleformer", "serve", f"checkpoint={args.checkpoint}", "port=0", *args.settings]
    log = args.output.with_suffix(".log")
    args.output.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as file:
        process = subprocess.Popen(words, stderr=file, stdout=file, env={**os.environ, "PYTHONUNBUFFERED": "1"})
    load, memory = None, []
    try:
        while b" at http" not in log.read_bytes():
            if process.poll() is not None:
                raise ValueError(f"the server did not start: {log.read_text(encoding='utf-8').strip()}")
            time.sleep(0.2)
        url = log.read_text(encoding="utf-8").partition(" at ")[2].split()[0]
        load = Load(url, _sources(), args.seed)
        threads = [threading.Thread(target=load.run, args=(number,), daemon=True) for number in range(args.clients)]
        for thread in threads:
            thread.start()
        end = time.monotonic() + 60 * args.minutes
        while time.monotonic() < end and process.poll() is None:
            memory.append(resident(process))
            time.sleep(1)
        load.stop.set()
        for thread in threads:
            thread.join(300)
        lost = sum(thread.is_alive() for thread in threads)
        metrics = httpx.get(f"{url}/metrics", trust_env=False, timeout=60).text
        process.send_signal(signal.SIGTERM)
        code = process.wait(300)
    finally:
        process.kill()
    fifth = max(1, len(memory) // 5)
    growth = min(memory[-fifth:]) / min(memory[fifth : 2 * fifth]) - 1
    said = log.read_text(encoding="utf-8")
    wrong = load.wrong + [f"{lost} clients had no answer"] * bool(lost)
    wrong += ["the server wrote a traceback"] * ("Traceback" in said)
    wrong += [f"it ended with {code}"] * (code != 0) + [f"memory grew by {growth:.1%}"] * (growth > GROWTH)
    report = {
        "minutes": args.minutes,
        "clients": args.clients,
        "requests": dict(sorted(load.counts.items())),
        "memory_mib": [round(size, 1) for size in (memory[0], min(memory[fifth : 2 * fifth]), memory[-1], max(memory))],
        "memory_growth": round(growth, 4),
        "metrics": [line for line in metrics.splitlines() if "_total" in line and not line.startswith("#")],
        "log_lines": len(said.splitlines()),
        "wrong": wrong,
    }
    args.output.write_text(json.dumps(report, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(json.dumps(report, indent=2, ensure_ascii=False))
    sys.exit(bool(wrong))


def _sources() -> list[str]:
    from scaleformer.data.synthetic.corpus import SyntheticConfig, generate

    return [text for document in generate(SyntheticConfig(), "test", 8) for text in document.source]


if __name__ == "__main__":
    with one_line_errors():
        main()
