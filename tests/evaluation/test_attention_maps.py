"""Attention weights against the explicit formula, and against the output of the layers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scaleformer.evaluation.attention_maps import attention_maps, read_maps, write_maps
from scaleformer.model.attention import MECHANISMS, SITES
from scaleformer.model.config import ModelConfig
from scaleformer.model.transformer import Transformer
from scaleformer.translation.translator import Translator
from tests.runs import make_run, tokenizer

SOURCE, TARGET = ["the cat sees", "it runs"], ["die katze sieht", "sie rennt"]


@pytest.fixture(scope="module")
def translator(tmp_path_factory) -> Translator:
    return Translator.load(make_run(tmp_path_factory.mktemp("maps") / "run"), "cpu")


def with_attention(translator: Translator, name: str) -> Translator:
    torch.manual_seed(1)
    size = tokenizer().vocab_size
    shape = {"encoder_layers": 2, "decoder_layers": 1, "width": 32, "feedforward": 16, "heads": 4}
    changed = Translator.__new__(Translator)
    sites = {site: {"name": "softmax"} for site in SITES if site not in MECHANISMS[name].sites}
    model = Transformer(ModelConfig(size, size, attention={"name": name}, sites=sites, **shape)).eval()
    vars(changed).update(vars(translator), model=model)
    return changed


@pytest.mark.parametrize("name", MECHANISMS)
def test_the_weights_reproduce_the_layer(translator, name):
    """Rows sum to one, see nothing later in the decoder, and reproduce the output of the layer."""
    model = with_attention(translator, name)
    calls: list = []
    layer = model.model.decoder_layers[0].cross_attention
    inner = layer.attend

    def spy(query, key, value, *rest):
        out = inner(query, key, value, *rest)
        calls.append((value, out))
        return out

    layer.attend = spy  # type: ignore[method-assign]
    maps = attention_maps(model, SOURCE, TARGET)
    S, L = len(maps.source_pieces), len(maps.target_pieces)
    shapes = {"encoder": (2, 4, S, S), "decoder": (1, 4, L, L), "cross": (1, 4, L, S)}
    around = {"transformer_xl": ["decoder"], "compressive": ["decoder"]}
    for site in around.get(name, []):
        del shapes[site]  # these do not go through `attend`
    assert {site: w.shape for site, w in maps.weights.items()} == shapes
    for site, weights in maps.weights.items():
        # one mixes values before weighting them, the other estimates its kernel
        if maps.mechanisms[site] != "linformer":
            assert weights.min() >= -1e-6
            totals = weights.sum(-1)
            if name == "routing":  # a query sees nothing where no key is in its cluster
                totals = totals[totals > 0]
            np.testing.assert_allclose(totals, 1, atol=1e-4)
    if "decoder" in maps.weights:
        assert np.abs(np.triu(maps.weights["decoder"], 1)).max() < 1e-6
    value, out = calls[-1]
    np.testing.assert_allclose(maps.weights["cross"][0] @ value[0].numpy(), out[0].numpy(), atol=1e-4)
    assert name in maps.mechanisms.values()


def test_equal_to_the_formula(translator):
    """s_ij = phi(Q_i).(phi(K_j) + phi(P_clip(j-i, -R, R))), the sum of all s_ij of a row being one."""
    model = with_attention(translator, "scaleformer")
    attention = model.model.encoder_layers[0].attention
    seen: list = []
    inner = attention.attend
    attention.attend = lambda q, k, *rest: seen.append((q[0], k[0])) or inner(q, k, *rest)  # type: ignore[method-assign]
    maps = attention_maps(model, SOURCE, TARGET)
    q, k = seen[0]
    R = attention.horizon

    def phi(x):
        return torch.nn.functional.elu(x) + 1

    S = k.shape[1]
    index = torch.arange(S)
    distance = (index[None, :] - index[:, None]).clamp(-R, R) + R  # (S, S)
    P = phi(attention.relative_embedding.detach())[:, distance]  # (H, S, S, d)
    scores = torch.einsum("hid,hijd->hij", phi(q), phi(k)[:, None] + P)  # (H, S, S)
    expected = scores / scores.sum(-1, keepdim=True)
    np.testing.assert_allclose(maps.weights["encoder"][0], expected.numpy(), atol=1e-5)


def test_the_model_is_unchanged(translator):
    before = translator.translate([SOURCE])
    attention_maps(translator, SOURCE)
    assert translator.translate([SOURCE]) == before
    assert all("attend" not in module.__dict__ for module in translator.model.modules())


def test_pieces_are_those_of_the_input(translator):
    maps = attention_maps(translator, SOURCE, TARGET)
    assert maps.target_pieces[0] == "<s>"
    assert maps.target_pieces.count("<sep>") == maps.source_pieces.count("<sep>") == 2
    assert maps.source_pieces[-1] == "</s>"
    own = attention_maps(translator, SOURCE)
    assert own.target_pieces[0] == "<s>"


def test_files_are_written_and_read(translator, tmp_path: Path):
    maps = attention_maps(translator, SOURCE, TARGET)
    path = write_maps(tmp_path / "results" / "attention-x", maps, {"seed": 1})
    again = read_maps(path)
    assert again.source_pieces == maps.source_pieces
    np.testing.assert_array_equal(again.weights["cross"], maps.weights["cross"])
    write_maps(tmp_path / "results" / "attention-y", attention_maps(translator, SOURCE, ["a"]), {})
    (tmp_path / "results" / "attention-y.npz").replace(tmp_path / "results" / "attention-x.npz")
    with pytest.raises(ValueError, match=r"attention-x\.json: not attention maps .*different document"):
        read_maps(path)


def test_a_full_disk_leaves_the_old_maps(translator, tmp_path: Path, monkeypatch):
    maps = attention_maps(translator, SOURCE, TARGET)
    path = write_maps(tmp_path / "attention-x", maps, {})

    def full(file, **_) -> None:
        file.write(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez_compressed", full)
    with pytest.raises(OSError, match="No space left on device") as error:
        write_maps(tmp_path / "attention-x", maps, {})
    assert error.value.filename == str(path.with_suffix(".npz"))
    np.testing.assert_array_equal(read_maps(path).weights["cross"], maps.weights["cross"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["attention-x.json", "attention-x.npz"]


@pytest.mark.parametrize("kept", [0, 100, 1000], ids="first {} bytes".format)
def test_damaged_arrays_are_reported(translator, tmp_path: Path, kept: int):
    path = write_maps(tmp_path / "attention-x", attention_maps(translator, SOURCE, TARGET), {})
    arrays = path.with_suffix(".npz")
    arrays.write_bytes(arrays.read_bytes()[:kept])
    with pytest.raises(ValueError, match=r"attention-x\.json: not attention maps"):
        read_maps(path)
    arrays.write_bytes(b"\0" * 100)
    with pytest.raises(ValueError, match=r"attention-x\.json: not attention maps"):
        read_maps(path)


def test_a_long_document_is_refused(translator):
    with pytest.raises(ValueError, match="tokens are too many for attention maps: wanted at most 5"):
        attention_maps(translator, SOURCE, TARGET, max_tokens=5)
