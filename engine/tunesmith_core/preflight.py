"""The first checks of a run: everything that would fail soon is said at once, before anything is created or started.

Standard library only and fast: headers and the head of the data are read, nothing is loaded. Only of a file that needs
libraries, these read the head, in a process of their own.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from tunesmith_core import (
    adapter_folders,
    datafmt,
    devices,
    environments,
    files,
    judges,
    paths,
    reward_files,
    reward_models,
)
from tunesmith_core.base_model import BaseModel, is_other
from tunesmith_core.chat_templates import OWN
from tunesmith_core.checkpoint_manifest import newest_noted
from tunesmith_core.datafmt import encoding
from tunesmith_core.datafmt.formats import RAW, RAW_TEXT
from tunesmith_core.datafmt.sniffing import LAYOUT_ROWS, head_rows
from tunesmith_core.errors import BugError, TunesmithError, UserError, wrap
from tunesmith_core.messages import Message
from tunesmith_core.model_cards import read_model_card
from tunesmith_core.model_folder import ModelFolder, base_folder, open_model_folder
from tunesmith_core.objectives import DISTILLATION, FROM_LABELS, FROM_PAIRS, LABELS, REINFORCEMENT, STORED
from tunesmith_core.operations.kinds.engine import WORKBOOK_HEAD, HeadSpec
from tunesmith_core.operations.runner import conduct
from tunesmith_core.saved_modules import num_saved
from tunesmith_core.spec import RunSpec, continues, told
from tunesmith_core.spec_rollouts import MODEL, NEED_PACKAGES, PYTHON, SCHEMA, RewardSpec
from tunesmith_core.spec_sections import SourceSpec
from tunesmith_core.spec_training import WSL
from tunesmith_core.spec_words import trains_whole
from tunesmith_core.teachers import check_teacher
from tunesmith_core.trained_parts import FULL, is_chosen, state_bytes
from tunesmith_core.unmatched_names import unmatched
from tunesmith_core.wsl.guest import Guest

MIN_FREE_BYTES = 64 << 20
COPIES_PER_CHECKPOINT = 3
"""An adapter and the two states of its optimizer."""

NUM_CHECKPOINTS_AT_ONCE = 3
"""Two that are kept and one being written."""


def check(spec: RunSpec) -> None:
    """Check that a run of this spec can start here.

    Raises:
        UserError: the first thing that is wrong with spec, model or data.
        EnvironmentProblem: the first thing that is wrong with this computer.
    """
    problems = spec.problems()
    if problems:
        raise TunesmithError("spec-invalid", told(problems, "\n"))
    if spec.hardware.system == WSL:
        Guest.load()
    else:
        environments.training_python()
    if spec.hardware.device == "cuda" and not devices.nvidia_present():
        raise TunesmithError("driver-missing", "The run is set to use a GPU, but no NVIDIA driver was found.")
    check_run(spec)


def check_run(spec: RunSpec) -> None:
    """Check what a start refuses of a valid spec, but for the training environment and the GPU.

    Raises:
        UserError: the first thing that is wrong with model, adapters or data.
        EnvironmentProblem: `disk-full` and what else keeps the run from its folder; missing packages of rewards.
    """
    model = check_model(spec)
    if spec.objective.kind in DISTILLATION:
        check_teacher(spec)
    for each in unmatched(spec, model.shapes):
        if each.is_certain:
            raise TunesmithError(each.code, each.message)
    adapter_folders.check_adapters(spec, model.shapes)
    _check_base_of_start(spec, model)
    check_data(spec, model)
    _check_disk(spec, model)


def check_model(spec: RunSpec) -> ModelFolder:
    """Check the base model.

    Raises:
        TunesmithError: what `base_folder` and `open_model_folder` find.
    """
    return open_model_folder(base_folder(spec.model.path, spec.model.revision))


def _check_base_of_start(spec: RunSpec, model: ModelFolder) -> None:
    """Check that the adapter of an earlier run, which noted its base model's files, belongs to these.

    Raises:
        UserError: `adapter-unfit` when weights, configuration or tokenizer are others.
    """
    if not continues(spec):
        return
    folder = adapter_folders.read_adapter(Path(spec.adapter.start_from)).path
    noted = newest_noted(folder.parent / "checkpoints")
    if noted and noted.base_model and is_other(noted.base_model, BaseModel(model.path, None).notes):
        raise TunesmithError(
            "adapter-unfit",
            "{path}: the adapter was trained on a base model whose files differ from those of {model}.",
            path=folder,
            model=model.path,
        )


def check_data(spec: RunSpec, model: ModelFolder) -> None:
    """Check the head of the data files and that chats can be rendered. Raises UserError with file and line."""
    check_rows(spec)
    for reward in spec.rollouts.rewards if spec.objective.kind in REINFORCEMENT else ():
        if reward.kind == MODEL:
            reward_models.check_alike(reward_models.find(reward.model), spec, model.path)
    for source in spec.all_sources():
        if not _renders_chats(spec, model) and _holds_chats(source):
            raise TunesmithError(
                "dataset-chat-template-missing",
                "{data_path} contains chats, but the model {path} has no chat template.",
                path=model.path,
                data_path=source.path,
            )


def check_rows(spec: RunSpec) -> None:
    """Check what the heads of the data files tell without the model. Raises UserError with file and line."""
    in_pairs = spec.objective.kind in FROM_PAIRS
    for source in spec.all_sources():
        in_labels = spec.objective.kind in LABELS
        has_stored = spec.objective.kind in STORED
        ways = {"in_pairs": in_pairs, "in_labels": in_labels, "has_stored": has_stored}
        datafmt.check_head(source, spec.data.skip_bad_rows, **ways)
        _check_by_engine(source, spec.data.skip_bad_rows, ways)
    _check_groups(spec)
    _check_rewards(spec)


def _check_rewards(spec: RunSpec) -> None:
    """Check that what rewards need is there. Raises UserError `reward-failed`, or EnvironmentProblem."""
    if spec.objective.kind not in REINFORCEMENT:
        return
    for reward in spec.rollouts.rewards:
        if reward.kind in NEED_PACKAGES and spec.hardware.system != WSL:
            environments.check_rewards()
        check_reward(reward)


def check_reward(reward: RewardSpec) -> None:
    """Check the file or model of a reward without running anything. Raises UserError `reward-failed`."""
    if reward.kind == SCHEMA:
        judges.read_schema(reward.schema)
    if reward.kind == MODEL:
        reward_models.find(reward.model)
    if reward.kind == PYTHON:
        reward_files.check(reward.path)


def _check_by_engine(source: SourceSpec, skip_bad_rows: bool, ways: dict[str, bool]) -> None:
    """Check that a file that libraries read has the sheet and the columns that were named, and its first rows.

    Without a training environment nobody can tell.
    """
    if datafmt.file_kind(Path(source.path)) not in datafmt.READ_BY_ENGINE:
        return
    asked = HeadSpec.of(source, LAYOUT_ROWS, counts=False, **ways)
    try:
        found: dict[str, Any] = conduct(WORKBOOK_HEAD, asked).get()  # Any: JSON values
    except UserError:
        raise
    except TunesmithError:
        # Setting up or repairing the environment is asked for elsewhere.
        return
    if found["problem"]:
        raise TunesmithError.from_dict(found["problem"])
    if source.sheet or source.columns:
        datafmt.resolve_layout(found["rows"], source.format, source.columns, source.path)
    if problem := datafmt.head_problem(found, skip_bad_rows):
        raise problem


def _check_groups(spec: RunSpec) -> None:
    """Check that the files have the column whose groups stay whole, as far as their heads tell.

    Raises:
        UserError: `dataset-groups` names the first file without it.
    """
    column = spec.evaluation.groups_by
    for source in spec.data.sources if column else ():
        path = Path(source.path)
        if datafmt.file_kind(path) in datafmt.READ_BY_ENGINE:
            continue
        rows = head_rows(path, LAYOUT_ROWS, lambda _line, _error: None, source.encoding)
        if not any(column in row for row in rows):
            raise TunesmithError(
                "dataset-groups",
                '{path}: there is no column "{column}", which is the group column (evaluation.group_column).',
                path=path,
                column=column,
            )


def pair_notes(spec: RunSpec) -> list[Message]:
    """Return what a person should know of preference pairs that contradict each other. Raises UserError."""
    sources = spec.data.sources if spec.objective.kind in FROM_PAIRS else ()
    return [note for source in sources if (note := datafmt.swapped_note(source))]


def class_notes(spec: RunSpec) -> list[Message]:
    """Return what a person should know of the labels that a run learns as classes. Raises UserError."""
    if spec.objective.kind not in FROM_LABELS or spec.objective.regression:
        return []
    return [note for source in spec.data.sources for note in datafmt.label_notes(source)]


def raw_text_note(spec: RunSpec) -> Message | None:
    """Return the warning of a run that joins prompts and completions although its model has a chat template."""
    if all(source.format != RAW for source in spec.data.sources):
        return None
    model = check_model(spec)
    return RAW_TEXT if _renders_chats(spec, model) else None


def _renders_chats(spec: RunSpec, model: ModelFolder) -> bool:
    return model.has_chat_template or spec.model.chat_template != OWN


def _holds_chats(source: SourceSpec) -> bool:
    path = Path(source.path)
    kind = datafmt.file_kind(path)
    if kind in datafmt.READ_BY_ENGINE:
        return source.format in ("messages", "sharegpt")
    for line, row in datafmt.read_rows(path, lambda _line, _error: None, source.encoding):
        try:
            layout = datafmt.resolve_layout([row], source.format, source.columns, str(path))
            return isinstance(datafmt.to_messages(row, layout, encoding.row_place(path, kind, line)), datafmt.Chat)
        except UserError:
            # A bad row that the spec says to skip; the next one tells.
            continue
    return False


def _checkpoint_bytes(spec: RunSpec, model: ModelFolder) -> int:
    if spec.adapter.kind != FULL:
        tables = num_saved(spec, read_model_card(model.path)) if trains_whole(spec) else 0
        return (model.adapter_bytes(spec.adapter.rank) + 4 * tables) * COPIES_PER_CHECKPOINT
    trained = {name: shape for name, shape in model.shapes.items() if is_chosen(name, shape, spec.adapter.parts)}
    number_bytes = 4 if spec.adapter.weights == "float32" else 2
    return number_bytes * sum(map(math.prod, trained.values())) + state_bytes(spec.optimizer.name, trained)


def _check_disk(spec: RunSpec, model: ModelFolder) -> None:
    runs_dir = paths.runs_dir()
    try:
        files.probe_writable(runs_dir)
    except OSError as error:
        problem = wrap(error)
        if isinstance(problem, BugError):
            # Whatever else stands in the way, such as a file of that name, is no mistake of ours.
            problem = TunesmithError(
                "permission-or-antivirus",
                "{runs_dir}: {reason}.",
                runs_dir=runs_dir,
                reason=Message(str(error.strerror)),
            )
        raise problem from error
    needed_bytes = max(MIN_FREE_BYTES, _checkpoint_bytes(spec, model) * NUM_CHECKPOINTS_AT_ONCE)
    free_bytes = files.free_bytes(runs_dir)
    if free_bytes < needed_bytes:
        raise TunesmithError(
            "disk-full",
            "{runs_dir}: {free_bytes} MiB are free. The checkpoints of this run need {needed_bytes} MiB.",
            runs_dir=runs_dir,
            free_bytes=free_bytes >> 20,
            needed_bytes=needed_bytes >> 20,
        )
