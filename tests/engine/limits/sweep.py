"""The child of the sweep of templates: tries one after another under the limits of a row, as a real child would.

Started as `python -m tests.engine.limits.sweep FOLDER FIRST`; FOLDER holds templates.json and model/; what became of
each template is appended to results.jsonl, what it touched outside is part of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tunesmith_core.datafmt import Chat
from tunesmith_core.errors import TunesmithError
from tunesmith_core.operations.limits import Limits, Portions
from tunesmith_core.spec_sections import DataSpec

CHAT = Chat(({"role": "user", "content": "Who are you?"}, {"role": "assistant", "content": "A model."}))
FORBIDDEN = ("os.system", "os.exec", "os.posix_spawn", "os.fork", "subprocess.Popen", "socket.connect", "socket.bind")


def main(folder: Path, first: int) -> None:
    """Try the templates from a number on."""
    sys.modules["torch"] = None  # type: ignore[assignment]
    from tunesmith_engine.data.render import Renderer
    from tunesmith_engine.model.folder import load_tokenizer

    templates = json.loads((folder / "templates.json").read_text(encoding="utf-8"))
    tokenizer = load_tokenizer(folder / "model")
    portions = Portions(folder / "portion", Limits())
    portions.limit_memory(portions.limits.memory_bytes)
    touched: list[str] = []

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(arguments[1], str) and set(arguments[1]) & set("wax+")
        if event in FORBIDDEN or (writes and str(arguments[0]) != str(folder / "results.jsonl")):
            touched.append(f"{event} {arguments!r}"[:200])

    sys.addaudithook(look)
    for number in range(first, len(templates)):
        tokenizer.chat_template = templates[number]
        portions.about(Path("rows.jsonl"), "jsonl")
        portions.begin("reader", number + 1)
        began_s, result = time.process_time(), {"number": number}
        try:
            with portions:
                renderer = Renderer(tokenizer, DataSpec(), portions)
                rendered = renderer.render(CHAT, f"rows.jsonl, line {number + 1}")
                list(renderer.tokenise([rendered]))
                result["text"] = rendered.text[:300]
        except TunesmithError as error:
            result |= {"code": error.code, "message": error.message[:2000], "hint": error.hint}
        result |= {"cpu_s": round(time.process_time() - began_s, 3), "touched": list(touched)}
        touched.clear()
        with (folder / "results.jsonl").open("a", encoding="utf-8", errors="replace") as file:
            file.write(json.dumps(result) + "\n")
            file.flush()
            os.fsync(file.fileno())


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
