"""`scaleformer serve`: one-line errors for its settings, and what it hands to the server."""

from __future__ import annotations

import socket
import sys

import pytest

from scaleformer.commands import run as run_command
from scaleformer.server import run as serving_run
from tests.commands.calls import error_line
from tests.runs import make_run


@pytest.fixture
def serve(monkeypatch, capsys, tmp_path):
    """The command in this process: exit code, stdout, stderr; the server does not start."""
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("SCALEFORMER_ONE_LINE", "0")
    monkeypatch.delenv("SCALEFORMER_TOKEN", raising=False)
    served = []

    def record(app, service, listener, name):
        listener.close()
        service.worker.end()
        served.append((app, service))

    monkeypatch.setattr(serving_run, "serve", record)

    def call(*arguments: str):
        monkeypatch.setattr(sys, "argv", ["scaleformer"])
        code: object = 0
        try:
            run_command("serve", ["port=0", *arguments])
        except SystemExit as error:
            code = error.code
        return served[-1] if code == 0 else (int(str(code)), *capsys.readouterr())

    return call


def test_settings_reach_the_server(serve, tmp_path, monkeypatch):
    run = make_run(tmp_path / "run")
    monkeypatch.setenv("SCALEFORMER_TOKEN", "abc")
    app, service = serve(f"checkpoint={run}", "decoding=beam", "decoding.beam_size=3", "body=5000", "seconds=9")
    [model] = service.models
    assert (model.decoding.strategy, model.decoding.beam_size) == ("beam", 3)
    assert (service.limits.body, service.limits.seconds, model.name) == (5000, 9, "run")
    assert app.state.token == "abc"
    app, service = serve(f"checkpoint={run}", "token=mine")
    assert (app.state.token, service.models[0].decoding.strategy) == ("mine", "greedy")


def test_what_is_wrong_is_one_line(serve, tmp_path):
    run = make_run(tmp_path / "run")
    assert "nowhere: no such run directory" in error_line(serve("checkpoint=nowhere"))
    assert "port is 70000: it must be an int from 0 to 65535" in error_line(serve(f"checkpoint={run}", "port=70000"))
    assert "split is 'page': it must be one of" in error_line(serve(f"checkpoint={run}", "split=page"))
    assert "token: wanted ASCII letters" in error_line(serve(f"checkpoint={run}", "token='a b'"))
    assert "body is 1: it must be an int of at least 1000" in error_line(serve(f"checkpoint={run}", "body=1"))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        line = error_line(serve(f"checkpoint={run}", f"port={port}"))
    assert f"host=127.0.0.1 port={port}: Address already in use: choose another port or host" in line


def test_without_the_extra(serve, tmp_path, monkeypatch):
    for name in list(sys.modules):
        if name.startswith("scaleformer.server"):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    line = error_line(serve("checkpoint=x"))
    assert line == "error: serving needs prometheus_client: pip install 'scaleformer[serve]'\n"


def test_access_from_other_machines_needs_a_token(serve, tmp_path, caplog):
    run = make_run(tmp_path / "run")
    serve(f"checkpoint={run}", "host=0.0.0.0")
    assert "other machines can reach this server without a token" in caplog.text
    caplog.clear()
    serve(f"checkpoint={run}", "host=localhost")
    serve(f"checkpoint={run}", "host=0.0.0.0", "token=abc")
    assert "token" not in caplog.text


def test_several_models_by_their_languages(serve, tmp_path):
    first, second = make_run(tmp_path / "a"), make_run(tmp_path / "b", seed=2)
    _, service = serve(f"models={{en-es: {first}, en-fr: {second}, de-es: {first}}}")
    found = [(model.name, model.reads, list(model.writes)) for model in service.models]
    assert found == [("en-es", "en", ["es"]), ("en-fr", "en", ["fr"]), ("de-es", "de", ["es"])]
    assert service.models[0].translator is service.models[2].translator
    assert service.models[1].translator.sha256 != service.models[0].translator.sha256
    wanted = "wanted checkpoint=RUN for one model, or models={en-es: RUN, en-fr: RUN2} for several"
    for settings in ([], [f"checkpoint={first}", f"models={{en-es: {second}}}"]):
        assert wanted in error_line(serve(*settings))
    assert "tag=2es: models= are chosen by" in error_line(serve(f"models={{en-es: {first}}}", "tag=2es"))
    assert "models: 'english': wanted the two languages" in error_line(serve(f"models={{english: {first}}}"))
