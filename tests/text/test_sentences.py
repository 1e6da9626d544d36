"""Sentences of eleven languages, against ends set by hand, and what the corrections must not do."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaleformer.text.sentences import sentence_ends

SENTENCES = """\
fr: M. Dupont est là. | Mme. Lenoir part. | MM. Dupont et Durand. | J.-C. Martin le sait. | Fin.
fr: Né en 52 av. J.-C. | Rome était grande. | Au second tour J. Martin gagne. | Voir art. 5.
fr: Des noix, etc. | Puis il part.
es: Dijo que no. | Luego vino. | No. | Se lo da. | Está en el mar. | Luego sale. | La Sra. López va.
es: Lo hizo O. García. | Vea la pág. 5. | Mide 5 km. | Luego baja. | ¿Qué? | ¡No!
es: Está a 80 °C. | El agua hierve.
en: That's me. | Wow. | No. 5 is alive. | The answer is no. | Mr. Smith vs. Jones.
en: See Fig. 3 and Sec. 4. | It works.
en: Use torch.Tensor. | It is I. | He left. | The U.S. Army came.
de: Der 2. Weltkrieg begann. | Am 3. Oktober kam er. | Im 6. Stock. | Das stört mich. | Es geht.
de: Siehe S. 5. | Gut.
it: Il sig. Rossi c'è. | Lo fa. | Ha detto di no. | Poi G. Verdi scrisse. | Cfr. pag. 5.
it: Pane, vino, ecc. | Poi basta.
pt: O Sr. Silva saiu. | A Dra. Ana mora na R. Costa. | Pág. 5. | Disse que não. | Depois foi.
nl: Ik weet dat. | Zij staat aan de top. | Prof. dr. J. de Vries komt. | Zie blz. 5. | Goed.
pl: Zob. art. 4 ust. 2. | Pan dr. Nowak ma 10 tys. zł. | Kościół św. Jana o godz. 8.00. | Psy itp. | Tak.
ru: А. С. Пушкин писал. | Хлеб и т. д. | Потом чай. | В 1990 г. | Он жил в г. Омске. | Весит 5 кг. | Это много.
cs: Pan p. Novák a MUDr. Černá. | Viz str. 5. | Psi, např. jezevčík. | Dne 3. října. | Ano.
sv: Vi ser det. | Han är med. | Djur, t.ex. hundar. | Dr. Berg kom. | Se s. 5. | Bra.
pt-BR: O Sr. Silva saiu. | Ele foi.
en_GB: 1. First item. | 2. Second item.
fi: 1. Ensimmäinen kohta. | Hän tuli 3. tammikuuta.
ja: 1. これは本です。 | あれはペンです。
tlh: a. First item. | J.-P. Roe came.
it: Ha vinto Rossi. | "La gara è bella". | Il "duro" resta.
en: He "left." | "And now?" | Go.
it: è tutto. | qui no! | e là?
es: Haga esto: 1. Abra la caja. | 2. Saque el libro.
"""


def parts(text: str, language: str) -> list[str]:
    ends = list(sentence_ends(text, language))
    assert "".join(text[start:end] for start, end in zip([0, *ends], ends, strict=False)) == text
    return [text[start:end].strip() for start, end in zip([0, *ends], ends, strict=False)]


@pytest.mark.parametrize("line", SENTENCES.splitlines())
def test_ends_by_language(line: str) -> None:
    language, wanted = line.split(": ", 1)
    assert parts(wanted.replace(" | ", " "), language) == wanted.split(" | ")


@given(st.text(st.sampled_from("aB1 .!?'\"“”«»()-J,:。\u00a0éЯг")), st.sampled_from(["fr", "en", "ru", "de", "tlh"]))
@settings(max_examples=200, deadline=None)
def test_ends_rise_to_the_end_of_the_text(text: str, language: str) -> None:
    ends = list(sentence_ends(text, language))
    assert ends == sorted(set(ends))
    assert ends[-1:] == ([len(text)] if text else [])
    assert 0 not in ends


@pytest.mark.parametrize("space", ["\u00a0", "\u202f", "\u2028", "\u3000"])
def test_spaces_of_several_bytes_are_read_as_spaces(space: str) -> None:
    """sentencex panics where one of them stands after certain signs."""
    assert parts(f"J{space}.[/“(»*?J<“é>,{space}a", "ta")
    assert parts(f"The first one.{space}The second one.", "en") == ["The first one.", "The second one."]


def test_a_long_text_is_read_in_windows() -> None:
    sentence = "Je vois M. Dupont et J.-C. Martin à la gare. "
    assert parts(sentence * 200, "fr") == [sentence.strip()] * 200
