"""A stand-in for the Hugging Face Hub: the part of its HTTP interface by which models are pushed and fetched."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit


class Hub:
    """Models by name, each its files by path; private: those that were made so; asked: the requests."""

    def __init__(self) -> None:
        self.models: dict[str, dict[str, bytes]] = {}
        self.private: set[str] = set()
        self.asked: list[str] = []
        self.endpoint = ""

    def commit(self, name: str) -> str:
        files = self.models[name]
        return hashlib.sha1(b"".join(p.encode() + files[p] for p in sorted(files))).hexdigest()


class Handler(BaseHTTPRequestHandler):
    hub: Hub

    def log_message(self, *_: Any) -> None:
        pass

    def answer(self, content: Any, status: int = 200, **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for key, value in {"Content-Length": str(len(body)), **headers}.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_POST(self) -> None:
        path = urlsplit(self.path).path
        self.hub.asked.append(f"POST {path}")
        body = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if not self.headers["Authorization"]:
            self.answer({"error": "Invalid username or password."}, 401)
        elif path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            self.hub.models.setdefault(name, {})
            if asked.get("private") or asked.get("visibility") == "private":
                self.hub.private.add(name)
            self.answer({"url": f"{self.hub.endpoint}/{name}"})
        elif path == "/api/validate-yaml":
            self.answer({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            names = [file["path"] for file in json.loads(body)["files"]]
            self.answer({"files": [{"path": n, "uploadMode": "regular", "shouldIgnore": False} for n in names]})
        elif found := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            for line in map(json.loads, body.decode().splitlines()):
                if line["key"] == "file":
                    self.hub.models[found[1]][line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            commit = self.hub.commit(found[1])
            self.answer({"commitUrl": f"{self.hub.endpoint}/{found[1]}/commit/{commit}", "commitOid": commit})
        else:
            self.answer({"error": "not here"}, 404)

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append(f"GET {path}")
        found = re.fullmatch(r"(?:/api/models)?/([^/]+/[^/]+)/(revision|tree|resolve)/([^/]+)/?(.*)", path)
        if found is None or found[1] not in self.hub.models:
            self.answer({"error": "Repository not found"}, 404, X_Error_Code="RepoNotFound")
            return
        name, what, revision, file = found.groups()
        files, commit = self.hub.models[name], self.hub.commit(found[1])
        if revision not in ("main", commit):
            self.answer({"error": "Invalid rev id"}, 404, X_Error_Code="RevisionNotFound")
        elif what == "revision":
            self.answer({"id": name, "sha": commit, "siblings": [{"rfilename": file} for file in files]})
        elif what == "tree":
            digest = {path: hashlib.sha1(content).hexdigest() for path, content in files.items()}
            self.answer([{"type": "file", "path": p, "size": len(files[p]), "oid": digest[p]} for p in files])
        else:
            digest = hashlib.sha1(files[file]).hexdigest()
            self.answer(files[file], ETag=f'"{digest}"', X_Repo_Commit=commit)

    do_HEAD = do_GET


@contextmanager
def served() -> Iterator[Hub]:
    """An empty Hub at `endpoint`."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Own", (Handler,), {"hub": hub}))
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
