"""What every page is given: the services of the window, made once and built on first use.

`context.preferences.values` are the settings, `context.runs` is `services.run_service.RunService`, `context.library` is
`services.library.Library`. What the shell itself asks of the run service (all cheap, from memory, on the UI thread):

- `live_runs() -> list[LiveRun]`; a LiveRun has `id`, `name`, `state` (a RunState value), `step`, `num_steps` (0 when
  unknown), `eta_s` (None when unknown).
- signal `live_runs_changed()`: the list or one of its numbers changed (at most about once a second).
- signal `run_ended(str id, str name, str state)`: finished, stopped, failed or interrupted, while this window was open.
- `stop(run_id, mode)` with mode "save" or "discard"; returns at once.
- `shutdown()`: ends its threads; runs go on.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from tunesmith_gui.services.preferences import Preferences

if TYPE_CHECKING:
    from tunesmith_core.spec import RunSpec
    from tunesmith_gui.chat.service import ChatService
    from tunesmith_gui.environment.setup_service import SetupService
    from tunesmith_gui.export.service import ExportService
    from tunesmith_gui.services.desktop import Desktop
    from tunesmith_gui.services.downloads import DownloadService
    from tunesmith_gui.services.hardware import HardwareService
    from tunesmith_gui.services.library import Library
    from tunesmith_gui.services.run_service import RunService


class Context:
    """Services by name, each built when it is first asked for, so that start-up stays short.

    Attributes:
        new_run_spec: what the form of the Train page holds; None before it was built.
    """

    def __init__(self, preferences: Preferences) -> None:
        self.preferences = preferences
        self.new_run_spec: RunSpec | None = None

    @cached_property
    def runs(self) -> RunService:
        """Starts, stops, resumes and follows runs."""
        from tunesmith_gui.services.run_service import RunService

        return RunService()

    @cached_property
    def library(self) -> Library:
        """The index of all runs, read on a worker thread."""
        from tunesmith_gui.services.library import Library

        return Library()

    @cached_property
    def hardware(self) -> HardwareService:
        """GPU, memory and processor readings."""
        from tunesmith_gui.services.hardware import HardwareService

        return HardwareService()

    @cached_property
    def desktop(self) -> Desktop:
        """Notifications, keep-awake, reveal in the file manager."""
        from tunesmith_gui.services.desktop import Desktop

        return Desktop()

    @cached_property
    def setup(self) -> SetupService:
        """Probe, checks, installation and repair, as commands of the installer."""
        from tunesmith_gui.environment.setup_service import SetupService

        return SetupService()

    @cached_property
    def chat(self) -> ChatService:
        """The trained model that answers, loaded for one run at a time."""
        from tunesmith_gui.chat.service import ChatService

        return ChatService()

    @cached_property
    def exports(self) -> ExportService:
        """Exports, which go on when their sheet is closed."""
        from tunesmith_gui.export.service import ExportService

        return ExportService()

    @cached_property
    def downloads(self) -> DownloadService:
        """Models on their way from a hub, whatever page is shown."""
        from tunesmith_gui.services.downloads import DownloadService

        return DownloadService()

    def shutdown(self) -> None:
        """Ends the threads and commands of every service that was used; runs go on."""
        for name in ("runs", "library", "hardware", "desktop", "setup", "chat", "exports", "downloads"):
            service = self.__dict__.get(name)
            if service is not None:
                service.shutdown()
