"""What stands between this computer and the internet: proxies, and certificates that somebody added."""

from __future__ import annotations

import re
from typing import Any

from tunesmith_core.redact import redact
from tunesmith_setup.probe.computer import Computer

PROXY_VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
TLS_VARIABLES = frozenset(
    """SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE PIP_CERT NODE_EXTRA_CA_CERTS UV_NATIVE_TLS
    UV_SYSTEM_CERTS GIT_SSL_NO_VERIFY""".split()
)
INTERNET_SETTINGS = "HKCU\\Software\\Microsoft\\Windows\\CurrentVersion\\Internet Settings"
COMPANY_CERTIFICATES = "HKLM\\SOFTWARE\\Policies\\Microsoft\\SystemCertificates\\Root\\Certificates"
ADDED_CERTIFICATES = ("/usr/local/share/ca-certificates", "/etc/pki/ca-trust/source/anchors")


def facts(computer: Computer) -> dict[str, Any]:
    """Return `proxies` and `tls`."""
    proxies = {name: value for name, value in computer.variables.items() if name.upper() in PROXY_VARIABLES and value}
    tls = {name: value for name, value in computer.variables.items() if name.upper() in TLS_VARIABLES and value}
    if computer.system == "windows":
        proxies |= _system_proxy(computer)
        if computer.registry_keys(COMPANY_CERTIFICATES):
            tls["company certificates"] = COMPANY_CERTIFICATES
    else:
        for folder in ADDED_CERTIFICATES:
            names = [name for name in computer.names(folder) if name.endswith((".crt", ".pem"))]
            if names:
                tls[folder] = ", ".join(names)
    return {"proxies": {name: without_credentials(value) for name, value in sorted(proxies.items())}, "tls": tls}


def without_credentials(value: str) -> str:
    """Return the value of a proxy setting, which may name several proxies, without user names and passwords."""
    parts = re.split(r"([;,\s])", value)
    return redact("".join(re.sub(r"^((?:\w+=)?(?:[a-z][\w+.-]*://)?).*@", r"\1", part) for part in parts))


def _system_proxy(computer: Computer) -> dict[str, str]:
    """Return the proxy of Windows' settings, which programs that read only variables do not see."""
    values = computer.registry(INTERNET_SETTINGS)
    found = {}
    if values.get("ProxyEnable") == 1 and values.get("ProxyServer"):
        found["system"] = str(values["ProxyServer"])
    if values.get("AutoConfigURL"):
        found["system script"] = str(values["AutoConfigURL"])
    return found
