"""What a URL says of a store's server: where it is, who asks, and how TLS checks it. Nothing is connected here, and of the
machine only the files of TLS are looked for.

    redis://user:password@host:6379/0
    rediss://:password@host:6380?ssl_ca_certs=/etc/store/ca.pem&ssl_certfile=/etc/store/us.pem&ssl_keyfile=/etc/store/us.key
    unix:///run/store.sock?db=1&password=secret

Options have the names that Redis clients for Python gave them, so that one URL serves several programs; one that is not
listed here is an error, for it would have been set in vain. No error quotes more of a URL than the name of a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import SplitResult, parse_qs, unquote, urlsplit

from omniflow_core.errors import OmniFlowError, Reason, Violation

_DEFAULT_HOST = "localhost"
_DEFAULT_PORT = 6379
_TLS_SCHEMES = ("rediss", "valkeys")
_OPTIONS = frozenset({"db", "username", "password"})
_FILES = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_TLS_OPTIONS = _OPTIONS | {*_FILES, "ssl_check_hostname", "ssl_cert_reqs"}
_NO = frozenset({"0", "f", "false", "n", "no", "off", "disabled"})
_WRONG_OPTION = "its URL has an option that is unknown or has a wrong value"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tls:
    """Whom we trust, in addition to the authorities of the system, and what we show. Empty paths: none."""

    authority: str = ""
    certificate: str = ""
    key: str = ""
    """Of the certificate, unless its file holds both."""
    is_certificate_checked: bool = True
    """Whether the server's certificate has to be trusted."""
    is_name_checked: bool = True
    """Whether it has to be of the host that was meant, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Where a server is, and who asks."""

    host: str = _DEFAULT_HOST
    port: int = _DEFAULT_PORT
    path: str = ""
    """Of a unix socket, in place of host and port."""
    tls: Tls | None = None
    username: str = ""
    password: str = field(default="", repr=False)
    database: int = 0


def endpoint_of(url: str) -> Endpoint:
    """What a URL says. Raises INVALID_CONFIG for options that there are not, wrong values, and files that are not there."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORT
        options = {name: values[0] for name, values in parse_qs(parts.query).items()}
        is_tls = parts.scheme in _TLS_SCHEMES
        if not options.keys() <= (_TLS_OPTIONS if is_tls else _OPTIONS):
            raise ValueError
        return Endpoint(
            host=unquote(parts.hostname or _DEFAULT_HOST),
            port=port,
            path=unquote(parts.path) if parts.scheme == "unix" else "",
            tls=_tls(options) if is_tls else None,
            username=options.get("username") or unquote(parts.username or ""),
            password=options.get("password") or unquote(parts.password or ""),
            database=_database(parts, options),
        )
    except ValueError:  # and not its text, which may quote the URL
        raise invalid(_WRONG_OPTION) from None


def _database(parts: SplitResult, options: Mapping[str, str]) -> int:
    path = "" if parts.scheme == "unix" else unquote(parts.path).strip("/")
    text = options.get("db") or path or "0"
    if not text.isdecimal():
        raise ValueError
    return int(text)


def _tls(options: Mapping[str, str]) -> Tls:
    wanted = options.get("ssl_cert_reqs", "required")
    if wanted not in ("none", "optional", "required") or ("ssl_keyfile" in options and "ssl_certfile" not in options):
        raise ValueError
    for text in _missing_files(options):
        raise invalid(text)
    is_certificate_checked = wanted != "none"  # "optional" is a word for servers: they always have a certificate
    return Tls(
        authority=options.get("ssl_ca_certs", ""),
        certificate=options.get("ssl_certfile", ""),
        key=options.get("ssl_keyfile", ""),
        is_certificate_checked=is_certificate_checked,
        is_name_checked=is_certificate_checked and options.get("ssl_check_hostname", "yes").lower() not in _NO,
    )


def _missing_files(options: Mapping[str, str]) -> Iterator[str]:
    for name in _FILES:
        if name in options and not Path(options[name]).is_file():
            yield f"{name} in its URL names {options[name]}, and there is no such file"


def invalid(what: str) -> OmniFlowError:
    """INVALID_CONFIG for the setting that names the store."""
    return OmniFlowError(
        Reason.INVALID_CONFIG,
        f"the metadata store: {what}",
        violations=(Violation(field="control.metadata_url", description=what),),
    )
