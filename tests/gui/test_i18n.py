"""Translations: complete, in step with the sources, the places of values intact, never built from f-strings."""

from __future__ import annotations

import ast
import json
import re
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import pytest
from PySide6.QtCore import QCoreApplication, QFileInfo, QLocale, QTranslator
from PySide6.QtWidgets import QFileDialog, QFileIconProvider, QLabel
from pytestqt.qtbot import QtBot

from tests.gui.conftest import settle
from tests.gui.fake_runs import FakeRuns
from tests.gui.layout_checks import clipped, shown_widgets
from tunesmith_core import environments
from tunesmith_core import messages as core_messages
from tunesmith_core.error_codes import CODES
from tunesmith_core.errors import TunesmithError
from tunesmith_gui import core_texts, i18n_build, tr
from tunesmith_gui.assets import asset_folder
from tunesmith_gui.context import Context
from tunesmith_gui.shell.main_window import MainWindow
from tunesmith_gui.shortcuts import actions
from tunesmith_gui.widgets.safe_label import SafeLabel

PACKAGE = i18n_build.PACKAGE
CATALOGUES = ("tunesmith_en.ts", "tunesmith_zh_CN.ts")
TRANSLATING = {"tr", "translate", "QT_TRANSLATE_NOOP"}
PACKAGES = (i18n_build.CORE, i18n_build.ENGINE, i18n_build.SETUP)
PLACE = re.compile(r"%(?:\d|n)")


@pytest.fixture
def english_again() -> Iterator[None]:
    yield
    tr.install_language("en")


def messages(name: str) -> list[tuple[str, str, list[str]]]:
    """(context, source, translations) of a .ts file; several translations are plural forms."""
    result = []
    for context in ElementTree.parse(asset_folder("i18n") / name).iter("context"):
        for message in context.iter("message"):
            translation = message.find("translation")
            assert translation is not None
            forms = [form.text or "" for form in translation.iter("numerusform")] or [translation.text or ""]
            result.append((context.findtext("name") or "", message.findtext("source") or "", forms))
    return result


def translating_calls(path: Path) -> Iterator[ast.Call]:
    """Calls of a source file that mark a text for translation."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in TRANSLATING:
                yield node


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_texts_for_translation_are_literals(path: Path) -> None:
    """lupdate takes an f-string for its literal text, and can't see a variable at all."""
    for call in translating_calls(path):
        is_self_tr = isinstance(call.func, ast.Attribute) and call.func.attr == "tr"
        text = call.args[0 if is_self_tr else 1]
        literal = isinstance(text, ast.Constant) and isinstance(text.value, str)
        passed_on = ast.unparse(text) in ("english", "self.label", "self.title")  # tables of QT_TRANSLATE_NOOP
        assert literal or passed_on, f"{path.name}:{call.lineno}: {ast.unparse(call)}"


@pytest.mark.parametrize("name", CATALOGUES)
def test_every_text_is_translated(name: str) -> None:
    assert i18n_build.unfinished(asset_folder("i18n") / name) == []


@pytest.mark.parametrize("name", CATALOGUES)
def test_values_keep_their_places(name: str) -> None:
    for context, source, forms in messages(name):
        for form in forms:
            assert sorted(PLACE.findall(form)) == sorted(PLACE.findall(source)), (context, source, form)


def test_chinese_uses_its_own_marks() -> None:
    for context, source, (form, *_) in messages("tunesmith_zh_CN.ts"):
        chinese = bool(re.search("[\u4e00-\u9fff]", form))
        assert not (chinese and re.search(r"[\u4e00-\u9fff][,;:?!.]", form)), (context, source, form)
        assert not (chinese and source.endswith("…") and not form.endswith("…")), (context, source, form)


def test_texts_of_the_core_are_in_step() -> None:
    assert i18n_build.CORE_TEXTS.read_text(encoding="utf-8") == i18n_build.core_texts_source()
    assert {str(text) for text in core_texts.CORE_TEXTS} == set(i18n_build.core_literals())


def test_catalogues_are_in_step_with_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running the build again must change nothing; what is not in step is a text that would stay English."""
    folder = asset_folder("i18n")
    for path in folder.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    monkeypatch.setattr(i18n_build, "asset_folder", lambda _name: tmp_path)
    monkeypatch.setattr(core_messages, "FOLDER", tmp_path)
    i18n_build.update()
    for name in CATALOGUES:
        assert messages(name) == [
            (context, source, forms) for context, source, forms in _messages_at(tmp_path / name)
        ], f"{name} is stale: run python -m tunesmith_gui.i18n_build"
        compiled = Path(name).with_suffix(".qm").name
        assert (tmp_path / compiled).read_bytes() == (folder / compiled).read_bytes(), compiled


def _messages_at(path: Path) -> list[tuple[str, str, list[str]]]:
    result = []
    for context in ElementTree.parse(path).iter("context"):
        for message in context.iter("message"):
            translation = message.find("translation")
            assert translation is not None
            forms = [form.text or "" for form in translation.iter("numerusform")] or [translation.text or ""]
            result.append((context.findtext("name") or "", message.findtext("source") or "", forms))
    return result


def test_chinese_reaches_widgets_core_texts_and_plurals(english_again: None) -> None:
    assert tr.install_language("zh_CN") == "zh_CN"
    assert tr.translate("Rail", "Train") == "训练"
    assert tr.core_text(CODES["cuda-oom"].title) == "显存已满"
    assert QCoreApplication.translate("MainWindow", "%n active run(s)", "", 3) == "3 个运行未结束"
    assert tr.install_language("en") == "en"
    assert tr.translate("Rail", "Train") == "Train"
    assert QCoreApplication.translate("MainWindow", "%n active run(s)", "", 1) == "1 active run"
    assert QCoreApplication.translate("MainWindow", "%n active run(s)", "", 2) == "2 active runs"


def test_errors_of_the_window_are_translated(english_again: None) -> None:
    tr.install_language("zh_CN")
    error = TunesmithError("keyring-missing", "The keyring refused the token ({reason}).", reason="NoKeyringError")
    assert tr.core_text(error.message) == "密钥环拒绝保存令牌（NoKeyringError）。"


def test_a_dialog_of_qt_is_in_chinese(qtbot: QtBot, english_again: None) -> None:
    tr.install_language("zh_CN")
    dialog = QFileDialog()
    qtbot.addWidget(dialog)
    dialog.setOption(QFileDialog.Option.DontUseNativeDialog)
    told = [each.text() for each in dialog.findChildren(QLabel) if each.text()]
    told += [dialog.labelText(each) for each in QFileDialog.DialogLabel]
    dialog.setFileMode(QFileDialog.FileMode.Directory)
    told += [dialog.labelText(each) for each in QFileDialog.DialogLabel]
    told.append(QFileIconProvider().type(QFileInfo(str(Path(__file__).parent))))
    assert [each for each in told if re.search("[a-z]{2}", each)] == []


@pytest.mark.parametrize(
    ("setting", "system", "language"),
    [
        ("system", ["zh-Hans-CN", "zh"], "zh_CN"),
        ("system", ["de-DE", "en-US"], "en"),
        ("system", ["fr-FR"], "en"),
        ("zh_CN", ["en-US"], "zh_CN"),
        ("en", ["zh-CN"], "en"),
    ],
)
def test_language_follows_the_system_unless_chosen(
    monkeypatch: pytest.MonkeyPatch, setting: str, system: list[str], language: str
) -> None:
    class Desktop:
        def uiLanguages(self) -> list[str]:
            return system

    monkeypatch.setattr(QLocale, "system", staticmethod(Desktop))
    assert tr.resolve_language(setting) == language


def test_values_are_put_in_once() -> None:
    assert tr.fill("%2 of %1", 3, "a") == "a of 3"
    assert tr.fill("%1 and %2", "%2", "x") == "%2 and x", "a value with a place in it stays as it is"
    assert tr.fill("100 % of %1 %9", "y") == "100 % of y %9"


def test_numbers_sizes_and_durations_are_for_people() -> None:
    assert tr.number(14812) == "14,812"
    assert tr.number(0.63, 1) == "0.6"
    assert [tr.size(each) for each in (0, 900, 5000, 3 << 20)] == ["0 B", "900 B", "5 KiB", "3 MiB"]
    assert tr.size(5 << 30) == "5.0 GiB"
    assert tr.moment(time.mktime((2026, 11, 23, 13, 53, 0, 0, 0, -1))) == "2026-11-23 13:53"
    assert [tr.duration(each) for each in (-1, 45, 90, 3900)] == ["0 s", "45 s", "2 min", "1 h 05 min"]
    assert tr.core_text("") == ""


class PseudoTranslator(QTranslator):
    """Makes every text half as long again, in brackets, with accents: what is not in brackets was never translated."""

    def translate(self, _context: str, source: str, _disambiguation: str = "", n: int = -1) -> str:
        text = source if n < 0 else source.replace("%n", str(n))
        accented = text.translate(str.maketrans("aeiouAEIOU", "àéîöûÀÉÎÖÛ"))
        return f"[{accented}{' ~~~~~' * (len(text) // 12)}{'~' * (len(text) // 2 % 6)}]"

    def isEmpty(self) -> bool:
        return False


@pytest.mark.parametrize("key", ["train", "runs", "environment", "settings"])
def test_window_in_a_longer_language_shows_no_english_and_cuts_nothing(
    context: Context, qtbot: QtBot, english_again: None, home: Path, key: str
) -> None:
    python = environments.environment_python(home / "envs" / "t")
    python.parent.mkdir(parents=True)
    python.touch()
    (home / "envs" / "train.current").write_text("t\n", encoding="utf-8")
    application = QCoreApplication.instance()
    assert application is not None
    pseudo = PseudoTranslator(application)
    application.installTranslator(pseudo)
    context.__dict__["runs"] = FakeRuns()
    try:
        window = MainWindow(context)
        window.resize(1280, 800)
        window.show()
        window.show_page(key)
        settle()
        assert clipped(window) == []
        words = {each.text() for each in shown_widgets(window) if isinstance(each, QLabel) and each.text()}
        plain = {each for each in words if re.search("[a-zA-Z]{3}", each) and not each.startswith("[")}
        assert {each for each in plain if not _is_a_value(each)} == set()
        window.close_without_asking()
        window.deleteLater()
    finally:
        application.removeTranslator(pseudo)
    settle()


def _is_a_value(text: str) -> bool:
    """Names, paths, keys and numbers with a unit are the same in every language."""
    keys = {action.shown_keys for action in actions()}
    return text in keys | {"Tunesmith"} or bool(re.fullmatch(r"/\S+|[A-Z]:\\\S+|[\d., /]+ (GiB|MiB|KiB)", text))


def test_no_text_promises_how_many_minutes_this_computer_takes() -> None:
    promises = re.compile(r"\b(?:\d+|one|two|five|ten)[- ]minutes?\b", re.IGNORECASE)
    assert [source for _, source, _ in messages("tunesmith_zh_CN.ts") if promises.search(source)] == []


def test_the_core_reads_the_same_translations_as_the_window() -> None:
    compiled = json.loads((core_messages.FOLDER / "zh_CN.json").read_text(encoding="utf-8"))
    assert compiled == i18n_build.translations(asset_folder("i18n") / "tunesmith_zh_CN.ts")
    made = set().union(*map(i18n_build.templates, PACKAGES))
    assert made <= set(compiled), "a message without a translation"
    assert "Adapters of rank {rank}: {names}." in made, "the engine's messages are not collected"
    assert "{name}: Python did not answer within {seconds} s." in made, "the setup's messages are not collected"


def has_words(text: ast.JoinedStr) -> bool:
    """Whether an f-string holds words beside its values."""
    parts = [each.value for each in text.values if isinstance(each, ast.Constant)]
    return bool(re.search("[A-Za-z]{3}", " ".join(map(str, parts))))


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_no_message_is_a_finished_sentence(package: Path) -> None:
    """An f-string can't be looked up in the catalogue, nor can the plain text of a warning."""
    for path in package.rglob("*.py"):
        if path.parent.name == "build":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            texts = node.args[i18n_build.TEMPLATE_PLACES.get(name, len(node.args)) :][:1]
            texts += [each.value for each in node.keywords if each.arg == "hint" and name in i18n_build.TEMPLATE_PLACES]
            where = f"{path.name}:{node.lineno}: {ast.unparse(node)}"
            assert not any(isinstance(each, ast.JoinedStr) and has_words(each) for each in texts), where
            if name in ("warning", "warn") and package is i18n_build.ENGINE and len(node.args) > 1:
                assert not isinstance(node.args[1], ast.JoinedStr | ast.Constant), where


def test_a_message_of_the_core_reaches_a_label_in_chinese(qtbot: QtBot, english_again: None) -> None:
    tr.install_language("zh_CN")
    label = SafeLabel()
    qtbot.addWidget(label)
    label.setText(core_messages.Message("The run {run} is still in progress.", run="r-1"))
    assert label.text() == "运行 r-1 仍在进行。"


ONE_WORD = {
    r"\bprompts?\b": "提示词",
    r"\bresponses?\b": "回答",
    r"\bmap columns\b": "指定各列",
    r"\bmodel hub\b": "模型站",
}
"""What a word of the field is called in Chinese, everywhere."""

OTHERWISE = re.compile(
    r"\{prompt|\(prompt, answer|prompt=Question|prompt and completion, or text|no response in time", re.IGNORECASE
)
"""Names of columns and of values, and what a machine does not give."""

NOT_THESE = re.compile("回复|答复|提示语|模型中心|映射列|聊天模板|[个殊制] ?token")
"""Other words for the same."""


def test_words_of_the_field_have_one_word_each_in_chinese() -> None:
    told = messages("tunesmith_zh_CN.ts")
    pairs = [(source, form) for _, source, forms in told for form in forms if not OTHERWISE.search(source)]
    wrong = [
        (source, text)
        for pattern, word in ONE_WORD.items()
        for source, text in pairs
        if re.search(pattern, source, re.IGNORECASE) and word not in text
    ]
    assert wrong == []
    assert [text for _, text in pairs if NOT_THESE.search(text)] == []
