"""Drives and mount points that could hold environments and models: kind, file system, room."""

from __future__ import annotations

import re
from typing import Any

from tunesmith_core.machine import Disk
from tunesmith_setup.probe.computer import Computer

NETWORK_FILE_SYSTEMS = frozenset("nfs nfs4 cifs smb3 smbfs 9p fuse.sshfs fuse.rclone afs ceph glusterfs davfs".split())
LOCAL_FILE_SYSTEMS = frozenset(
    """ext2 ext3 ext4 xfs btrfs zfs f2fs jfs reiserfs bcachefs overlay ntfs ntfs3 fuseblk vfat exfat drvfs""".split()
)
"""File systems that keep files; the rest of a mount table is the kernel's own."""

HIDDEN = ("/boot", "/snap/", "/var/lib/docker/", "/run/")
"""Mount points that nobody installs into; what a desktop mounts is below /run/media."""


def facts(computer: Computer) -> dict[str, Any]:
    """Return `disks`."""
    found = _windows(computer) if computer.system == "windows" else _linux(computer)
    return {"disks": tuple(found)}


def _windows(computer: Computer) -> list[Disk]:
    return [
        Disk(
            path=path,
            kind=kind,
            file_system=file_system,
            total_bytes=space.total_bytes if space else None,
            free_bytes=space.free_bytes if space else None,
        )
        for path, kind, file_system, space in computer.drives()
    ]


def _linux(computer: Computer) -> list[Disk]:
    found: dict[str, Disk] = {}
    for line in (computer.read("/proc/mounts") or "").splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        device, path, file_system = words[0], _unescaped(words[1]), words[2]
        if path.startswith(HIDDEN) and not path.startswith("/run/media/"):
            continue
        if file_system == "9p" and re.fullmatch(r"/mnt/[a-z]", path):
            # How the Windows Subsystem for Linux shows the drives of Windows.
            file_system = "drvfs"
        if file_system in NETWORK_FILE_SYSTEMS:
            # Not asked for its room: a server that is gone never answers.
            found[path] = Disk(path=path, kind="network", file_system=file_system)
        elif file_system in LOCAL_FILE_SYSTEMS:
            found[path] = _local(computer, device, path, file_system)
    return [found[path] for path in sorted(found)]


def _local(computer: Computer, device: str, path: str, file_system: str) -> Disk:
    space = computer.space(path)
    return Disk(
        path=path,
        kind=_kind(computer, device),
        file_system=file_system,
        total_bytes=space.total_bytes if space else None,
        free_bytes=space.free_bytes if space else None,
    )


def _kind(computer: Computer, device: str) -> str:
    """Return "removable" for what hangs on USB or says so, "fixed" for other devices."""
    if not device.startswith("/dev/"):
        return "unknown"
    block = computer.resolved(f"/sys/class/block/{device.removeprefix('/dev/')}")
    if "/usb" in block:
        return "removable"
    # A partition's mark is at its disk.
    marks = (computer.read(f"{folder}/removable") for folder in (block, block.rpartition("/")[0]))
    return "removable" if any((mark or "").strip() == "1" for mark in marks) else "fixed"


def _unescaped(path: str) -> str:
    """Return a path of the mount table, in which a space is written as \\040."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), path)
