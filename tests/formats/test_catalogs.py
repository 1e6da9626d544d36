"""String Catalogs: a language is added in the layout of Xcode, and all else stays."""

from __future__ import annotations

import json

import pytest

from scaleformer.formats.blocks import CHOICES
from scaleformer.formats.catalogs import CatalogFile
from scaleformer.formats.files import read_prose
from scaleformer.formats.splicing import ANEW
from tests.formats.fake import translate, unchanged
from tests.formats.faults import check_damage, check_fault

ADDED = """,
        "es" : {
          "stringUnit" : {
            "state" : "needs_review",
            "value" : "HI %@ — YOU"
          }
        }"""
ALONE = """
      "localizations" : {
        "es" : {
          "stringUnit" : {
            "state" : "needs_review",
            "value" : "OPEN \\"%1$@\\""
          }
        }
      }"""
UNIT = """
        "{}" : {{
          "stringUnit" : {{
            "state" : "translated",
            "value" : "{}"
          }}
        }}"""
FILE = f"""{{
  "sourceLanguage" : "en",
  "strings" : {{
    "" : {{

    }},
    "a.done" : {{
      "localizations" : {{{UNIT.format("en", "Done")},{UNIT.format("es", "Hecho")}
      }}
    }},
    "files" : {{
      "localizations" : {{
        "en" : {{
          "variations" : {{
            "plural" : {{

            }}
          }}
        }}
      }}
    }},
    "hi.there" : {{
      "comment" : "A greeting",
      "localizations" : {{{UNIT.format("en", "hi %@ — you")}
      }}
    }},
    "no" : {{
      "shouldTranslate" : false
    }},
    "open \\"%1$@\\"" : {{

    }}
  }},
  "version" : "1.0"
}}"""


def test_a_language_is_added() -> None:
    file = CatalogFile(FILE.encode(), "a.xcstrings", "es")
    assert unchanged(file) == FILE.encode()
    assert [block.text for block in file.blocks] == ["hi \ufffc — you", 'open "\ufffc"']
    wanted = FILE.replace(UNIT.format("en", "hi %@ — you"), UNIT.format("en", "hi %@ — you") + ADDED)
    begin, empty, end = wanted.rpartition(" : {\n\n    }\n  },")
    wanted = begin + empty.replace("\n\n    }", f"{ALONE}\n    }}", 1) + end
    assert translate(file)[0].decode() == wanted
    assert file.left == {"units that are translated or stay": 2, CHOICES: 1, "units without words": 1}
    assert ["es" in one.get("localizations", {}) for one in json.loads(wanted)["strings"].values()].count(True) == 3
    assert translate(file)[0].decode() == wanted
    assert translate(CatalogFile(f"{FILE}\n".encode(), "a.xcstrings", "es"))[0].decode() == f"{wanted}\n"
    again = CatalogFile(wanted.encode(), "a.xcstrings", "es")
    assert [block.text for block in again.blocks] == []


def test_another_layout_is_counted() -> None:
    data = json.dumps(json.loads(FILE)).encode()
    file = CatalogFile(data, "a.xcstrings", "es")
    assert unchanged(file) == data
    assert file.left[ANEW] == 0
    assert json.loads(translate(file)[0]) == json.loads(translate(CatalogFile(FILE.encode(), "a", "es"))[0])
    assert file.left[ANEW] == 1


@pytest.mark.parametrize(
    "data",
    [b"", b"[]", b"{}", b'{"strings": []}', b'{"strings": {"a": 3}}', b'{"strings": {"a": {}}}', b'{"a":' * 9999],
)
def test_faults(data: bytes) -> None:
    name = "a.xcstrings"
    check_fault(lambda: CatalogFile(data, name, "es"), "not a String Catalog of Xcode: wanted source", f"{name}: ")


def test_what_cannot_be_translated_is_counted() -> None:
    text = "You have {n, plural, one {# file} other {# files}} here"
    data = json.dumps({"sourceLanguage": "en", "strings": {text: {}, "%d": {}}}).encode()
    file = CatalogFile(data, "a.xcstrings", "es")
    assert file.left == {CHOICES: 1, "units without words": 1}
    assert unchanged(file) == data


def test_the_language_has_to_be_known() -> None:
    check_fault(
        lambda: read_prose(FILE.encode(), "a.xcstrings", "catalog", "en", "none"), "name yours, such as target_"
    )
    assert read_prose(FILE.encode(), "a.xcstrings", "catalog", "en", "none", "es")[0].blocks


def test_no_damage_is_another_error() -> None:
    check_damage(lambda data, name: CatalogFile(data, name, "es"), FILE.encode(), "a.xcstrings", times=300)
