"""Windows Job Object: all processes of an engine as one thing that dies when its owner does."""

from __future__ import annotations

import sys

if sys.platform == "win32":  # pragma: no cover
    import ctypes
    from ctypes import wintypes

    _EXTENDED_LIMIT_INFORMATION = 9
    _KILL_ON_JOB_CLOSE = 0x2000
    _PROCESS_MEMORY = 0x100

    class _BasicLimits(ctypes.Structure):
        _fields_ = (
            ("PerProcessUserTimeLimit", ctypes.c_int64),
            ("PerJobUserTimeLimit", ctypes.c_int64),
            ("LimitFlags", wintypes.DWORD),
            ("MinimumWorkingSetSize", ctypes.c_size_t),
            ("MaximumWorkingSetSize", ctypes.c_size_t),
            ("ActiveProcessLimit", wintypes.DWORD),
            ("Affinity", ctypes.c_size_t),
            ("PriorityClass", wintypes.DWORD),
            ("SchedulingClass", wintypes.DWORD),
        )

    class _ExtendedLimits(ctypes.Structure):
        _fields_ = (
            ("BasicLimitInformation", _BasicLimits),
            ("IoInfo", ctypes.c_uint64 * 6),
            ("ProcessMemoryLimit", ctypes.c_size_t),
            ("JobMemoryLimit", ctypes.c_size_t),
            ("PeakProcessMemoryUsed", ctypes.c_size_t),
            ("PeakJobMemoryUsed", ctypes.c_size_t),
        )

    class WindowsJob:
        """A job that ends every process in it when the last handle closes, also by the death of this process.

        Args:
            memory_bytes: what each process in it may use; None for as much as there is.
        """

        def __init__(self, memory_bytes: int | None = None) -> None:
            self._kernel32 = ctypes.WinDLL("kernel32", use_last_error=True)
            self._kernel32.CreateJobObjectW.restype = wintypes.HANDLE
            self._handle = wintypes.HANDLE(self._kernel32.CreateJobObjectW(None, None))
            if not self._handle:
                raise ctypes.WinError(ctypes.get_last_error())
            limits = _ExtendedLimits()
            limits.BasicLimitInformation.LimitFlags = _KILL_ON_JOB_CLOSE
            if memory_bytes:
                limits.BasicLimitInformation.LimitFlags |= _PROCESS_MEMORY
                limits.ProcessMemoryLimit = memory_bytes
            if not self._kernel32.SetInformationJobObject(
                self._handle, _EXTENDED_LIMIT_INFORMATION, ctypes.byref(limits), ctypes.sizeof(limits)
            ):
                raise ctypes.WinError(ctypes.get_last_error())

        def add(self, process_handle: int) -> None:
            """Put a process into the job; its later children belong to it too. One that has ended is let be."""
            process = wintypes.HANDLE(process_handle)
            if not self._kernel32.AssignProcessToJobObject(self._handle, process):
                error = ctypes.WinError(ctypes.get_last_error())
                # Windows denies it for a process that has ended already.
                if self._kernel32.WaitForSingleObject(process, 0) != 0:
                    raise error

        def terminate(self) -> None:
            """End every process in the job."""
            self._kernel32.TerminateJobObject(self._handle, 1)

        def close(self) -> None:
            """Close the handle, which ends what is left in the job."""
            self._kernel32.CloseHandle(self._handle)
