"""The few calls into Windows that the probe needs; elsewhere they find nothing."""

from __future__ import annotations

import sys

Value = str | int | tuple[str, ...]
Drive = tuple[str, str, str | None, tuple[int, int] | None]

if sys.platform == "win32":  # pragma: no cover
    import ctypes
    import string
    import winreg

    _ROOTS = {"HKLM": winreg.HKEY_LOCAL_MACHINE, "HKCU": winreg.HKEY_CURRENT_USER}
    # What GetDriveTypeW answers; optical and RAM drives can't hold our files.
    _DRIVE_KINDS = {2: "removable", 3: "fixed", 4: "network"}

    class _MemoryStatus(ctypes.Structure):
        """MEMORYSTATUSEX."""

        _fields_ = (
            ("length", ctypes.c_uint32),
            ("load", ctypes.c_uint32),
            ("total", ctypes.c_uint64),
            ("free", ctypes.c_uint64),
            ("commit_limit", ctypes.c_uint64),
            ("commit_left", ctypes.c_uint64),
            ("rest", ctypes.c_uint64 * 3),
        )

    def _open(key: str) -> winreg.HKEYType:
        root, _, path = key.partition("\\")
        return winreg.OpenKey(_ROOTS[root], path, 0, winreg.KEY_READ | winreg.KEY_WOW64_64KEY)

    def registry_values(key: str) -> dict[str, Value]:
        """Return texts, numbers and lists of texts of a key, by name; the default value's name is empty."""
        found: dict[str, Value] = {}
        try:
            with _open(key) as handle:
                for index in range(winreg.QueryInfoKey(handle)[1]):
                    name, value, _ = winreg.EnumValue(handle, index)
                    if isinstance(value, (str, int)):
                        found[name] = value
                    elif isinstance(value, list):
                        found[name] = tuple(str(item) for item in value)
        except OSError:
            return found
        return found

    def registry_keys(key: str) -> list[str]:
        """Return the names of the keys below a key, sorted."""
        try:
            with _open(key) as handle:
                return sorted(winreg.EnumKey(handle, index) for index in range(winreg.QueryInfoKey(handle)[0]))
        except OSError:
            return []

    def memory() -> tuple[int, int, int, int] | None:
        """Return bytes of main memory, free main memory, the commit limit and what is left of it."""
        status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
        if not ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status)):
            return None
        return status.total, status.free, status.commit_limit, status.commit_left

    def _file_system(path: str) -> str | None:
        name = ctypes.create_unicode_buffer(64)
        ok = ctypes.windll.kernel32.GetVolumeInformationW(path, None, 0, None, None, None, name, len(name))
        return name.value if ok else None

    def _space(path: str) -> tuple[int, int] | None:
        free, total = ctypes.c_uint64(), ctypes.c_uint64()
        ok = ctypes.windll.kernel32.GetDiskFreeSpaceExW(path, ctypes.byref(free), ctypes.byref(total), None)
        return (total.value, free.value) if ok else None

    def drives() -> list[Drive]:
        """Return path, kind, file system, and total and free bytes of each drive; a network drive is not touched."""
        found: list[Drive] = []
        letters = ctypes.windll.kernel32.GetLogicalDrives()
        for number, letter in enumerate(string.ascii_uppercase):
            path = f"{letter}:\\"
            kind = _DRIVE_KINDS.get(ctypes.windll.kernel32.GetDriveTypeW(path)) if letters >> number & 1 else None
            if kind == "network":
                # A share that is offline answers after half a minute.
                found.append((path, kind, None, None))
            elif kind:
                found.append((path, kind, _file_system(path), _space(path)))
        return found

else:

    def registry_values(_key: str) -> dict[str, Value]:
        """Return nothing: there is no registry."""
        return {}

    def registry_keys(_key: str) -> list[str]:
        """Return nothing: there is no registry."""
        return []

    def memory() -> tuple[int, int, int, int] | None:
        """Return nothing: main memory is in /proc."""
        return None

    def drives() -> list[Drive]:
        """Return nothing: volumes are in /proc."""
        return []
