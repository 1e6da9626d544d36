"""docs/attention.md: its listing computes what the module computes, and its table has what the registry has."""

from __future__ import annotations

import inspect
import re

import pytest
import torch

from scaleformer.model.attention import MECHANISMS, SITES
from scaleformer.model.attention.segment_recall import SegmentRecallAttention
from scaleformer.ops.segments.layout import SegmentLayout
from scripts.pages.attention_drawing import DRAWING, PAGE, drawing, listing


@pytest.mark.parametrize("algorithm", ["linear", "quadratic"])
@pytest.mark.parametrize("kept", [1, 5, 64])
@pytest.mark.parametrize("site", SITES)
def test_the_listing_gives_the_same_as_the_module(site: str, kept: int, algorithm: str) -> None:
    torch.manual_seed(1)
    module = SegmentRecallAttention(site, 32, 4, near=1, horizon=3, kept=kept, algorithm=algorithm).double().eval()
    for parameter in module.parameters():  # the first values of salience are zeros
        torch.nn.init.normal_(parameter, std=0.5)
    queries = torch.arange(9).repeat_interleave(torch.tensor([3, 1, 4, 2, 5, 1, 3, 2, 4]))  # (L,)
    keys = queries if site != "cross" else torch.arange(9).repeat_interleave(torch.tensor([2, 4, 1, 3, 1, 5, 2, 3, 2]))
    x, memory = torch.randn(1, len(queries), 32).double(), torch.randn(1, len(keys), 32).double()
    memory = memory if site == "cross" else x
    expected = module(x, memory, SegmentLayout(queries[None], keys[None], torch.ones(1, len(keys), dtype=torch.bool)))

    def heads(projection: torch.nn.Module, text: torch.Tensor) -> torch.Tensor:
        return projection(text)[0].unflatten(1, (4, -1)).transpose(0, 1)  # (H, L, d)

    q, k, v = heads(module.query, x), heads(module.key, memory), heads(module.value, memory)
    gate, recency = module.log_gate, module.recency
    out = listing()["segment_recall"](
        q, k, v, module.relative(), gate, module.salience, recency, queries, keys, kept, site == "decoder"
    )  # (H, L, d)
    torch.testing.assert_close(module.output(out.transpose(0, 1).flatten(1)), expected[0])


def test_the_listing_is_short_enough_to_read() -> None:
    names = listing()
    (code,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert {"seen_keys", "segment_recall"} <= set(names)
    assert len([line for line in code.splitlines() if line.strip()]) <= 45


def test_the_names_of_the_page_are_those_of_the_module() -> None:
    options = set(inspect.signature(SegmentRecallAttention).parameters)
    assert {"near", "kept", "slope", "explore", "recency", "horizon"} <= options
    defaults = {p.name: p.default for p in inspect.signature(SegmentRecallAttention).parameters.values()}
    text = PAGE.read_text(encoding="utf-8")
    assert f"the default has `near={defaults['near']}` and `kept={defaults['kept']}`" in " ".join(text.split())


def test_the_table_lists_exactly_the_mechanisms_with_their_sites() -> None:
    rows = re.findall(
        r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \| [^|]+ \| [^|]+ \| [^|]+ \|$", PAGE.read_text(), re.MULTILINE
    )
    assert sorted(name for name, _, _ in rows) == sorted(MECHANISMS)
    assert {name: SITES if sites == "all" else tuple(sites.split(", ")) for name, _, sites in rows} == {
        name: mechanism.sites for name, mechanism in MECHANISMS.items()
    }
    for name, source, _ in rows:  # what the page cites, the docstring cites
        year = re.findall(r"(?<!-)\d{4}", source)
        assert all(y in inspect.getsource(inspect.getmodule(MECHANISMS[name])) for y in year), name


def test_the_drawing_is_that_of_the_listing() -> None:
    assert DRAWING.read_text(encoding="utf-8") == drawing(), "python -m scripts.pages.attention_drawing"
