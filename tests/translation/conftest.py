"""Translators for the tests of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaleformer.translation.translator import Translator
from tests.copier import make_copier
from tests.runs import make_run


@pytest.fixture
def copier() -> Translator:
    return make_copier()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_run(tmp_path_factory.mktemp("translator") / "run")
