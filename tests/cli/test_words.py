"""Help pages explain words of Raceway's own: those of the manual's glossary that are not everybody's."""

from __future__ import annotations

import re

from typer.main import get_command

from raceway.cli.app import app
from raceway.cli.words import MEANINGS, explain
from tests.cli.test_options import leaves
from tests.rigs.manual import DOCS

ROW = re.compile(r"^\| (\*\*.+?) \| (.+?) \|", re.MULTILINE)
# Words of the glossary that help pages use as everybody does, or never.
EVERYBODY_S = {
    "acknowledgement", "attach", "block", "bus", "chain", "conversation", "commit", "cursor", "gold", "kind",
    "namespace", "payload", "policy", "publish", "queue", "redrive", "reliable", "request", "retention", "silver",
    "topic",
}  # fmt: skip
NEVER = {"door", "forwarded id", "hop", "observer", "principal", "seal"}


def glossary() -> dict[str, str]:
    text = (DOCS / "reference" / "glossary.md").read_text("utf-8").replace("`", "")
    return {word: meaning for words, meaning in ROW.findall(text) for word in re.findall(r"\*\*(.+?)\*\*", words)}


def test_a_text_is_followed_by_the_meaning_of_each_of_its_words_once() -> None:
    assert explain("Rows of a topic, by position. A row.") == (
        "Words: position, number of a row in the whole journal; row, one message in the journal, with all its columns."
    )


def test_a_text_without_such_words_is_followed_by_nothing() -> None:
    assert explain("Folder. Default: the setting journal.folder.") == ""


def test_every_word_of_the_glossary_is_explained_or_everybody_s() -> None:
    assert set(glossary()) == MEANINGS.keys() | EVERYBODY_S | NEVER


def test_the_glossary_has_the_same_meanings() -> None:
    told = glossary()
    assert {word: told[word] for word in MEANINGS} == MEANINGS


def test_no_help_page_has_a_word_that_it_does_not_explain() -> None:
    for name, command in leaves(get_command(app)).items():
        said = " ".join([command.help or "", *(parameter.help or "" for parameter in command.params)])
        assert [word for word in NEVER if re.search(rf"\b{word}s?\b", said)] == [], name
        assert set(meanings(explain(said))) <= set(meanings(command.epilog or "")), name


def test_the_first_help_page_explains_its_words_after_the_statuses() -> None:
    epilog = app.info.epilog or ""
    assert epilog.startswith("Exit status: ")
    told = meanings(epilog.partition("\n\n")[2])
    assert set(meanings(explain("wires, the journal, a context, the pipeline and the data folder"))) <= set(told)


def meanings(paragraph: str) -> list[str]:
    return paragraph.removeprefix("Words: ").removesuffix(".").split("; ")
