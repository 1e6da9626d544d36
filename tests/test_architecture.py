"""The floors of the package: a module imports what stands on its own floor or below it, and nothing in a circle."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "scaleformer"
# From the ground up: what later names may import earlier ones, never the other way round.
FLOORS = (
    "vocabulary",
    "batch",
    "system",
    "ops",
    "model",
    "text",
    "formats",
    "data",
    "checkpoints",
    "decoding",
    "translation",
    "server",
    "evaluation",
    "report",
    "training",
    "cli",
    "commands",
)
OPS_FLOORS = ("common", "softmax", "loss", "kernel", "segments", "recall")
# Who may know these libraries at all.
LIGHTNING = ("data", "checkpoints", "training", "commands")
HYDRA = ("cli", "commands")


def imported(path: Path) -> set[str]:
    """The full names of everything that a module imports, in functions and for type checkers too."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno}: import by the full name"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def modules(folder: Path) -> dict[str, list[Path]]:
    """The modules of each part of a folder: a package or a single module."""
    parts = {path.name: sorted(path.rglob("*.py")) for path in folder.iterdir() if path.is_dir()}
    parts |= {path.stem: [path] for path in folder.glob("*.py")}
    return {name: files for name, files in parts.items() if files and not name.startswith("__")}


def upward(folder: Path, prefix: str, floors: tuple[str, ...]) -> list[str]:
    """The imports that go from a lower floor to a higher one."""
    place = {name: number for number, name in enumerate(floors)}
    return [
        f"{path.relative_to(ROOT)} imports {name}"
        for part, files in modules(folder).items()
        for path in files
        for name in sorted(imported(path))
        if name.startswith(prefix) and place.get(name[len(prefix) :].split(".")[0], -1) > place[part]
    ]


@pytest.mark.parametrize(
    ("folder", "floors"), [(PACKAGE, FLOORS), (PACKAGE / "ops", OPS_FLOORS)], ids=["package", "ops"]
)
def test_every_room_has_its_floor_and_imports_point_down(folder: Path, floors: tuple[str, ...]) -> None:
    assert set(modules(folder)) == set(floors), "a new package wants a place in the list of floors"
    prefix = ".".join(folder.relative_to(ROOT).parts) + "."
    assert not upward(folder, prefix, floors)


def test_decoding_knows_token_ids_and_a_model_by_its_methods() -> None:
    names = {name for path in modules(PACKAGE)["decoding"] for name in imported(path)}
    rooms = {name.split(".")[1] for name in names if name.startswith("scaleformer.")}
    assert rooms == {"decoding", "system", "vocabulary"}


def circles(root: Path, package: Path) -> list[list[str]]:
    """The groups of modules that import each other, directly or over others."""
    paths = {".".join(path.relative_to(root).with_suffix("").parts): path for path in package.rglob("*.py")}
    paths = {name.removesuffix(".__init__"): path for name, path in paths.items()}
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        names = imported(path)
        graph[name] = {one if one in paths else one.rpartition(".")[0] for one in names} & (set(paths) - {name})
    for middle in graph:  # Warshall: what a module reaches over this one
        for reached in graph.values():
            if middle in reached:
                reached |= graph[middle]
    found = {frozenset(other for other in reached if name in graph[other]) for name, reached in graph.items()}
    return sorted(sorted(group) for group in found if group)


def test_no_module_imports_itself_over_others() -> None:
    assert not circles(ROOT, PACKAGE)


CLOSING = ("from pack import a", "def f():\n    import pack.a", "if TYPE_CHECKING:\n    import pack.a")


@pytest.mark.parametrize("last", CLOSING, ids=["top", "function", "typing"])
def test_a_circle_is_found(tmp_path: Path, last: str) -> None:
    texts = {"__init__": "", "a": "from pack.b import f", "b": "from pack.c import f", "c": last, "d": "import pack.a"}
    (tmp_path / "pack").mkdir()
    for name, text in texts.items():
        (tmp_path / "pack" / f"{name}.py").write_text(text, encoding="utf-8")
    assert circles(tmp_path, tmp_path / "pack") == [["pack.a", "pack.b", "pack.c"]]
    (tmp_path / "pack" / "c.py").write_text("import torch", encoding="utf-8")
    assert circles(tmp_path, tmp_path / "pack") == []


def test_libraries_stay_in_their_rooms() -> None:
    rooms = {"pytorch_lightning": LIGHTNING, "lightning_fabric": LIGHTNING, "hydra": HYDRA}
    wrong = [
        f"{path.relative_to(ROOT)} imports {name}"
        for part, files in modules(PACKAGE).items()
        for path in files
        for name in imported(path)
        if part not in rooms.get(name.split(".")[0], (part,))
    ]
    assert not wrong


def loaded_by(*modules: str) -> set[str]:
    """The libraries that a fresh process has loaded after it has imported these modules."""
    program = f"import sys, {', '.join(modules)}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_a_translator_and_the_server_start_without_lightning_and_hydra() -> None:
    """Importing them takes seconds, and no run and no command line is needed to translate."""
    modules = ["scaleformer.translation.translator", "scaleformer.translation.files.translating"]
    modules += [f"scaleformer.server.{path.stem}" for path in (PACKAGE / "server").glob("[!_]*.py")]
    loaded = loaded_by(*modules)
    assert {"torch", "scaleformer"} <= loaded
    assert not {"pytorch_lightning", "lightning_fabric", "hydra", "datasets"} & loaded


def test_evaluation_and_reports_start_without_lightning_and_data_sets() -> None:
    modules = [
        f"scaleformer.{path}" for path in ("evaluation.evaluate", "evaluation.length.extrapolation", "report.page")
    ]
    loaded = loaded_by(*modules)
    assert {"sacrebleu", "scaleformer"} <= loaded
    assert not {"pytorch_lightning", "lightning_fabric", "hydra", "datasets"} & loaded


def private_parts(path: Path) -> list[str]:
    """The names with an underscore that a module takes from others: `a.b._c`, or `import _c`."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "os", "torch"):
            found.append(node.attr)
    return [name for name in found if name.startswith("_") and not name.startswith("__")]


def test_private_parts_of_lightning_stay_in_one_module() -> None:
    inside = PACKAGE / "training" / "lightning_internals.py"
    assert private_parts(inside)
    assert not {
        path.name: names
        for path in (PACKAGE / "training").glob("*.py")
        if path != inside and (names := private_parts(path))
    }


def test_an_upward_import_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    for name, text in {"low/a.py": "from pack.high.b import f", "high/b.py": "import pack.low.a"}.items():
        (tmp_path / "pack" / name).parent.mkdir(parents=True)
        (tmp_path / "pack" / name).write_text(text, encoding="utf-8")
    assert upward(tmp_path / "pack", "pack.", ("low", "high")) == ["pack/low/a.py imports pack.high.b.f"]
