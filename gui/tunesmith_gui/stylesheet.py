"""The one style sheet, generated from tokens: shapes and states that Fusion and a palette cannot express.

Kept small on purpose: colours also live in the palette, so a page without a matching rule still looks right, and a
widget asks for a look by a property (`kind`, `role`, `tone`, `card`), never by a style sheet of its own.
"""

from __future__ import annotations

from string import Template

from tunesmith_gui.tokens import ICON_PX, RADIUS, RADIUS_SMALL, TYPE_SCALE_PT, Tokens

_RULES = Template("""
* { outline: none; }
QToolTip { background: $text; color: $surface; border: 1px solid $text; padding: 4px 6px; }
QMainWindow, QDialog, QScrollArea, QScrollArea > QWidget > QWidget[surface="page"] { background: $surface; }
QScrollArea { border: none; background: transparent; }
QScrollArea > QWidget > QWidget { background: transparent; }

QLabel[role="caption"] { font-size: ${caption}pt; }
QLabel[role="heading"] { font-size: ${heading}pt; font-weight: 600; }
QLabel[role="title"] { font-size: ${title}pt; font-weight: 600; }
QLabel[role="hero"] { font-size: ${hero}pt; font-weight: 600; }
QLabel[role="note"] { font-size: ${caption}pt; color: $text; background: $hover; border-radius: ${radius_small}px;
  padding: 8px 10px; }
QLabel[role="strong"] { font-weight: 600; }
QLabel[tone="muted"] { color: $muted; }
QLabel[tone="accent"] { color: $accent_text; }
QLabel[tone="ok"] { color: $ok; }
QLabel[tone="warn"] { color: $warn; }
QLabel[tone="error"] { color: $error; }

QFrame[card="true"] { background: $raised; border: 1px solid $border; border-radius: ${radius}px; }
QFrame[line="true"] { background: $border; border: none; }
QFrame[banner="neutral"] { background: $hover; border: 1px solid $border; border-radius: ${radius}px; }
QFrame[banner="ok"] { background: $ok_soft; border: 1px solid $ok_soft; border-radius: ${radius}px; }
QFrame[banner="warn"] { background: $warn_soft; border: 1px solid $warn_soft; border-radius: ${radius}px; }
QFrame[banner="error"] { background: $error_soft; border: 1px solid $error_soft; border-radius: ${radius}px; }

QPushButton, QToolButton, QComboBox, QTreeView { icon-size: ${icon}px; }
QPushButton[kind="rail"] { icon-size: ${rail_icon}px; }
QPushButton { background: $raised; color: $text; border: 1px solid $outline; border-radius: ${radius}px;
  padding: 6px 14px; }
QPushButton:hover { background: $hover; }
QPushButton:pressed, QPushButton:checked { background: $accent_soft; color: $accent_text; }
QPushButton:focus { border: 2px solid $focus; padding: 5px 13px; }
QPushButton:disabled { color: $disabled; border-color: $border; background: $surface; }
QPushButton::menu-indicator { image: url(controls:chevron-down-$ink.svg); width: ${arrow}px; height: ${arrow}px;
  subcontrol-origin: padding; subcontrol-position: center right; right: 8px; }
QPushButton[kind="primary"] { background: $accent; color: $on_accent; border-color: $accent; font-weight: 600; }
QPushButton[kind="primary"]:hover { background: $accent_hover; }
QPushButton[kind="primary"]:focus { border-color: $focus_on_accent; }
QPushButton[kind="primary"]:disabled { background: $hover; color: $muted; border-color: $border; }
QPushButton[kind="danger"] { color: $error; border-color: $error; }
QPushButton[kind="danger"]:hover { background: $error_soft; }
QPushButton[kind="danger"]:focus { border-color: $focus; }
QPushButton[kind="danger"]:disabled { color: $disabled; border-color: $border; }
QPushButton[kind="quiet"] { background: transparent; border-color: transparent; padding: 6px 10px; }
QPushButton[kind="quiet"]:hover { background: $hover; }
QPushButton[kind="quiet"]:focus { border-color: $focus; padding: 5px 9px; }
QPushButton[kind="link"] { background: transparent; border-color: transparent; color: $accent_text; padding: 2px 1px; }
QPushButton[kind="link"]:disabled { color: $disabled; border-color: transparent; background: transparent; }
QPushButton[kind="link"]:focus { border-color: $focus; padding: 1px 0; }
QPushButton[kind="segment"] { background: transparent; border-color: transparent; padding: 4px 12px;
  border-radius: ${radius_small}px; color: $muted; }
QPushButton[kind="segment"]:hover { color: $text; }
QPushButton[kind="segment"]:checked { background: $raised; color: $text; border-color: $outline; }
QPushButton[kind="segment"]:focus { border-color: $focus; padding: 3px 11px; }
QFrame[segmented="true"] { background: $hover; border: 1px solid $border; border-radius: ${radius}px; }

QToolButton { background: transparent; border: 1px solid transparent; border-radius: ${radius_small}px; padding: 5px; }
QToolButton:hover { background: $hover; }
QToolButton:pressed, QToolButton:checked { background: $accent_soft; }
QToolButton:focus { border: 2px solid $focus; padding: 4px; }
QToolButton::menu-indicator { image: none; }

QLineEdit, QPlainTextEdit, QTextEdit, QComboBox, QAbstractSpinBox { background: $raised; color: $text;
  border: 1px solid $outline; border-radius: ${radius_small}px; padding: 5px 8px;
  selection-background-color: $accent; selection-color: $on_accent; }
QLineEdit:focus, QPlainTextEdit:focus, QTextEdit:focus, QComboBox:focus, QAbstractSpinBox:focus {
  border: 2px solid $focus; padding: 4px 7px; }
QLineEdit:disabled, QPlainTextEdit:disabled, QComboBox:disabled, QAbstractSpinBox:disabled { color: $disabled;
  background: $surface; border-color: $border; }
*[invalid="true"] { border-color: $error; }
QAbstractSpinBox > QLineEdit, QComboBox > QLineEdit { border: none; padding: 0 4px; background: transparent; }
QAbstractSpinBox > QLineEdit:focus, QComboBox > QLineEdit:focus { border: none; padding: 0 4px; }
QComboBox { padding-right: 24px; combobox-popup: 0; }
QComboBox:focus { padding-right: 23px; }
QComboBox::drop-down { border: none; width: 24px; }
QComboBox::down-arrow { image: url(controls:chevron-down-$ink.svg); width: ${arrow}px; height: ${arrow}px; }
QComboBox QAbstractItemView { background: $raised; border: 1px solid $outline; padding: 4px; outline: none;
  selection-background-color: $accent_soft; selection-color: $text; }
QAbstractSpinBox { padding: 5px 22px 5px 6px; }
QAbstractSpinBox:focus { padding: 4px 21px 4px 5px; }
QAbstractSpinBox::up-button, QAbstractSpinBox::down-button { border: none; width: 20px; background: transparent; }
QAbstractSpinBox::up-button { subcontrol-position: top right; margin: 2px 2px 0 0; }
QAbstractSpinBox::down-button { subcontrol-position: bottom right; margin: 0 2px 2px 0; }
QAbstractSpinBox::up-arrow { image: url(controls:chevron-up-$ink.svg); width: 10px; height: 10px; }
QAbstractSpinBox::down-arrow { image: url(controls:chevron-down-$ink.svg); width: 10px; height: 10px; }
QFileDialog { backward-icon: url(controls:chevron-left-$ink.svg); forward-icon: url(controls:chevron-right-$ink.svg);
  filedialog-parent-directory-icon: url(controls:chevron-up-$ink.svg); min-width: 760px; }
QFileDialog QListView#sidebar { min-width: 130px; }

QCheckBox, QRadioButton { spacing: 8px; padding: 3px; border: 2px solid transparent; border-radius: ${radius_small}px; }
QCheckBox:focus, QRadioButton:focus { border-color: $focus; }
QCheckBox:disabled, QRadioButton:disabled { color: $disabled; }
QCheckBox::indicator, QRadioButton::indicator { width: ${box}px; height: ${box}px; border: 1px solid $control;
  background: $raised; }
QCheckBox::indicator { border-radius: 4px; }
QRadioButton::indicator { border-radius: ${round}px; }
QCheckBox::indicator:checked { background: $accent; border-color: $accent; image: url(controls:check-$mark.svg); }
QCheckBox::indicator:indeterminate { background: $accent; border-color: $accent; image: url(controls:dash-$mark.svg); }
QRadioButton::indicator:checked { background: $accent; border-color: $accent; image: url(controls:dot-$mark.svg); }
QCheckBox::indicator:disabled, QRadioButton::indicator:disabled { border-color: $border; background: $hover; }

QSlider:horizontal { min-height: 22px; }
QSlider::groove:horizontal { height: 4px; border-radius: 2px; background: $outline; }
QSlider::sub-page:horizontal { background: $accent; border-radius: 2px; }
QSlider::handle:horizontal { width: 16px; height: 16px; margin: -7px 0; border-radius: 9px; background: $accent;
  border: 1px solid $accent; }
QSlider::handle:horizontal:focus { border: 2px solid $focus_on_accent; }
QProgressBar { background: $hover; border: none; border-radius: 3px; max-height: 6px; min-height: 6px; }
QProgressBar::chunk { background: $accent; border-radius: 3px; }

QTabBar::tab { background: transparent; color: $muted; padding: 8px 2px; margin-right: 20px;
  border: none; border-bottom: 2px solid transparent; }
QTabBar::tab:hover { color: $text; }
QTabBar::tab:selected { color: $text; border-bottom-color: $accent_text; font-weight: 600; }
QTabBar::tab:focus { border-bottom-color: $focus; color: $accent_text; }
QTabWidget::pane { border: none; border-top: 1px solid $border; }

QTableView, QTreeView, QListView { background: $raised; color: $text; border: 1px solid $border;
  border-radius: ${radius}px; selection-background-color: $accent_soft; selection-color: $text;
  alternate-background-color: $raised; gridline-color: $border; }
QTableView:focus, QTreeView:focus, QListView:focus { border-color: $focus; }
QTableView::item, QTreeView::item, QListView::item { padding: 6px 8px; border: none; }
QFileDialog QTreeView { font-size: ${caption}pt; }
QFileDialog QTreeView::item { padding: 6px 0 6px -4px; }
QTableView::item:hover, QTreeView::item:hover, QListView::item:hover { background: $hover; }
QTableView::item:selected, QTreeView::item:selected, QListView::item:selected { background: $accent_soft;
  color: $text; }
QHeaderView { background: transparent; border: none; }
QHeaderView::section { background: $raised; color: $muted; border: none; border-bottom: 1px solid $border;
  padding: 8px; font-weight: 600; }
QHeaderView::section:horizontal { padding: 8px 11px; }
QHeaderView::section:vertical { border-bottom: none; }
QTableCornerButton::section { background: $raised; border: none; }

QMenu { background: $raised; color: $text; border: 1px solid $outline; padding: 4px; }
QMenu::item { padding: 6px 24px 6px 12px; border-radius: 4px; }
QMenu::item:selected { background: $accent_soft; }
QMenu::item:disabled { color: $disabled; }
QMenu::separator { height: 1px; background: $border; margin: 4px 8px; }
QMenu::icon { padding-left: 8px; }

QScrollBar:vertical { background: transparent; width: 12px; margin: 0; }
QScrollBar:horizontal { background: transparent; height: 12px; margin: 0; }
QAbstractScrollArea::corner { background: transparent; border: none; }
QScrollBar::handle { background: $outline; border-radius: 4px; margin: 2px; }
QScrollBar::handle:vertical { min-height: 32px; }
QScrollBar::handle:horizontal { min-width: 32px; }
QScrollBar::handle:hover { background: $control; }
QScrollBar::add-line, QScrollBar::sub-line { width: 0; height: 0; }
QScrollBar::add-page, QScrollBar::sub-page { background: transparent; }
QSplitter::handle { background: $border; }
QSplitter::handle:horizontal { width: 1px; }
QSplitter::handle:vertical { height: 1px; }

QFrame[rail="true"] { background: $surface; border: none; border-right: 1px solid $border; }
QPushButton[kind="rail"] { background: transparent; border-color: transparent; text-align: left; padding: 8px 10px;
  color: $muted; }
QPushButton[kind="rail"]:hover { background: $hover; color: $text; }
QPushButton[kind="rail"]:checked { background: $accent_soft; color: $text; font-weight: 600; }
QPushButton[kind="rail"]:focus { border-color: $focus; padding: 7px 9px; }
QPushButton[kind="rail"][folded="true"] { text-align: center; padding: 8px 0; }
QPushButton[kind="rail"][folded="true"]:focus { padding: 7px 0; }
QFrame[toast="true"] { background: $text; border: none; border-radius: ${radius}px; }
QFrame[toast="true"] QLabel { color: $surface; }
QFrame[toast="true"] QPushButton { color: $surface; font-weight: 600; }
QFrame[toast="true"] QPushButton:hover { background: transparent; text-decoration: underline; }
QFrame[toast="true"] QPushButton:focus { border-color: $surface; }
QFrame[popup="true"] { background: $raised; border: 1px solid $outline; border-radius: ${radius}px; }
QFrame[popup="true"] QListView { border: none; }
QFrame[drop="true"] { background: $accent_soft; border: 2px dashed $accent_text; border-radius: ${radius}px; }
""")


def build(tokens: Tokens, font_scale: float, *, dark: bool) -> str:
    """The style sheet for one palette at one font scale (1.0 is 100 %)."""
    sizes = {role: f"{points * font_scale:g}" for role, points in TYPE_SCALE_PT.items()}
    box = round(16 * font_scale)
    on_accent_is_dark = int(tokens.on_accent[1:3], 16) < 0x80
    values = {name: getattr(tokens, name) for name in Tokens.__slots__ if name not in ("chart",)}
    return _RULES.substitute(
        values,
        **sizes,
        radius=RADIUS,
        box=box,
        round=(box + 2) // 2,
        arrow=round(14 * font_scale),
        icon=round(ICON_PX * font_scale),
        rail_icon=round((ICON_PX + 2) * font_scale),
        radius_small=RADIUS_SMALL,
        disabled=mix(tokens.muted, tokens.surface, 0.62),
        control=mix(tokens.muted, tokens.raised, 0.8),
        focus_on_accent=tokens.text,
        ink="light" if dark else "dark",
        mark="dark" if on_accent_is_dark else "light",
    )


def mix(foreground: str, background: str, share: float) -> str:
    """The colour that `share` (0 to 1) of `foreground` over `background` gives."""
    pairs = [(int(foreground[i : i + 2], 16), int(background[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(f * share + b * (1 - share)):02x}" for f, b in pairs)
