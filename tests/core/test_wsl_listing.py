"""Lists of distributions as wsl.exe prints them: UTF-16 and UTF-8, old builds, several languages."""

from __future__ import annotations

import pytest

from tunesmith_core.machine import WslDistribution
from tunesmith_core.wsl.client import decode
from tunesmith_core.wsl.listing import parse

UBUNTU = WslDistribution(name="Ubuntu", version=2, running=True, default=True)
DEBIAN = WslDistribution(name="Debian", version=1)

ENGLISH = "  NAME      STATE           VERSION\r\n* Ubuntu    Running         2\r\n  Debian    Stopped         1\r\n"
CHINESE = "  名称      状态            版本\r\n* Ubuntu    正在运行        2\r\n  Debian    已停止          1\r\n"
TURKISH = "  AD        DURUM           SÜRÜM\r\n* Ubuntu    Çalışıyor       2\r\n  Debian    Durduruldu      1\r\n"
GERMAN = "  NAME      STATUS             VERSION\r\n* Ubuntu    Wird ausgeführt    2\r\n  Debian    Beendet   1\r\n"


@pytest.mark.parametrize("text", [ENGLISH, CHINESE, TURKISH, GERMAN])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16", "utf-8"])
def test_a_listing_is_read_in_every_language_and_encoding(text: str, encoding: str) -> None:
    assert parse(decode(text.encode(encoding))) == (UBUNTU, DEBIAN)


def test_a_long_name_leaves_one_space_between_columns() -> None:
    (found,) = parse("* Ubuntu-24.04-with-a-long-name Stopped 2\n")
    assert found == WslDistribution(name="Ubuntu-24.04-with-a-long-name", version=2, default=True)


def test_a_name_with_a_space_is_kept() -> None:
    (found,) = parse("  My Distro       Stopped         2\n")
    assert found.name == "My Distro"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Windows Subsystem for Linux has no installed distributions.\r\n",
        "适用于 Linux 的 Windows 子系统没有已安装的分发。\r\n",
        "Error code: Wsl/WSL_E_DEFAULT_DISTRO_NOT_FOUND\r\n",
        "  NAME      STATE           VERSION\r\n",
    ],
)
def test_other_texts_list_nothing(text: str) -> None:
    assert parse(text) == ()
