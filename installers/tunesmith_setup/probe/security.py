"""Antivirus products and application control that can block compilers and new programs, as the registry names them.

Windows only; a product is known by the service or driver that it installs. It is a hint, never a verdict.
"""

from __future__ import annotations

from typing import Any

from tunesmith_setup.probe.computer import Computer

SERVICES = "HKLM\\SYSTEM\\CurrentControlSet\\Services"
DEFENDER = "HKLM\\SOFTWARE\\Microsoft\\Windows Defender"
CODE_INTEGRITY = "HKLM\\SYSTEM\\CurrentControlSet\\Control\\CI\\Policy"
APPLOCKER = "HKLM\\SOFTWARE\\Policies\\Microsoft\\Windows\\SrpV2"

PRODUCTS = {
    "360rp": "360 Total Security",
    "ZhuDongFangYu": "360 Total Security",
    "AvastSvc": "Avast",
    "avast! Antivirus": "Avast",
    "AVGSvc": "AVG",
    "AntiVirService": "Avira",
    "AviraSecurity": "Avira",
    "bdservicehost": "Bitdefender",
    "VSSERV": "Bitdefender",
    "CSFalconService": "CrowdStrike Falcon",
    "CylanceSvc": "Cylance",
    "CiscoAMP": "Cisco Secure Endpoint",
    "ekrn": "ESET",
    "FSMA": "F-Secure",
    "HipsDaemon": "Huorong",
    "klif": "Kaspersky",
    "kxescore": "Kingsoft",
    "MBAMService": "Malwarebytes",
    "mfefire": "McAfee",
    "mfemms": "McAfee",
    "NortonSecurity": "Norton",
    "PSUAService": "Panda",
    "QQPCRTP": "Tencent PC Manager",
    "SAVService": "Sophos",
    "Sophos Endpoint Defense Service": "Sophos",
    "SentinelAgent": "SentinelOne",
    "SepMasterService": "Symantec Endpoint Protection",
    "TmCCSF": "Trend Micro",
    "WRSVC": "Webroot",
}
"""Name of a service, and the product it belongs to."""


def facts(computer: Computer) -> dict[str, Any]:
    """Return `security`."""
    return {"security": tuple(_windows(computer)) if computer.system == "windows" else ()}


def _windows(computer: Computer) -> list[str]:
    services = {name.lower() for name in computer.registry_keys(SERVICES)}
    found = sorted({product for name, product in PRODUCTS.items() if name.lower() in services})
    # Another product switches Defender off, and so can a person.
    if (
        "windefend" in services
        and computer.registry(f"{DEFENDER}\\Real-Time Protection").get("DisableRealtimeMonitoring") != 1
    ):
        found.append("Microsoft Defender")
    folders = f"{DEFENDER}\\Windows Defender Exploit Guard\\Controlled Folder Access"
    if computer.registry(folders).get("EnableControlledFolderAccess") == 1:
        found.append("Controlled folder access")
    if computer.registry(CODE_INTEGRITY).get("VerifiedAndReputablePolicyState") == 1:
        found.append("Smart App Control")
    if any(computer.registry(f"{APPLOCKER}\\{kind}").get("EnforcementMode") == 1 for kind in ("Exe", "Dll", "Script")):
        found.append("AppLocker")
    return found
