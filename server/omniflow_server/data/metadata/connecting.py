"""Which metadata store is meant, and a store that is open: it decides between settings and variables, and refuses a server
that would lose what it is told.

What talks to a server is imported when a URL is used, and not before: a control plane that is alone does without. No URL
appears in an error or a log, for a URL may hold a password; `address_of` is what is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import quote, unquote, urlsplit

from omniflow_core.errors import OmniFlowError, Reason, Violation
from omniflow_server.data.metadata.port import MetadataStore

SETTING = "control.metadata_url"
SCHEMES = ("redis", "rediss", "valkey", "valkeys", "unix")
_DEFAULT_PORT = "6379"


async def open_store(url: str, *, namespace: str, allow_volatile: bool, timeout_s: float) -> MetadataStore:
    """The store at a URL, connected and checked. `timeout_s`: of this and of each operation.

    Raises INVALID_CONFIG for a URL that is none, wrong credentials, and a server that is too old, cannot run scripts, only
    reads, throws keys away when it is full or (unless `allow_volatile`) does not write to disk; STORE_UNAVAILABLE when it
    does not answer.
    """
    from omniflow_server.data.metadata import server
    from omniflow_server.data.metadata.valkey import ValkeyStore

    address = address_of(url)
    await server.check(url, address=address, allow_volatile=allow_volatile, timeout_s=timeout_s)
    store = ValkeyStore(server.connection_of(url), namespace=namespace, address=address, timeout_s=timeout_s)
    await store.start()
    return store


def url_from(settings_url: str, environ: Mapping[str, str]) -> str:
    """The URL of the store: the setting, else REDIS_URL, else that of REDIS_HOST, REDIS_PORT and REDIS_PASSWORD, else "".

    Without REDIS_HOST the other two say nothing: Kubernetes sets a REDIS_PORT for a service that is named redis.
    """
    for source, url in ((SETTING, settings_url), ("REDIS_URL", environ.get("REDIS_URL", ""))):
        if url:
            address_of(url, source=source)
            return url
    host = environ.get("REDIS_HOST", "")
    return _url_of(host, environ) if host else ""


def address_of(url: str, *, source: str = "the URL of the metadata store") -> str:
    """Where a URL leads, without credentials and options. Raises INVALID_CONFIG, naming the source, for one that is none."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise _no_url(source, "it has a port that is no number from 0 to 65535") from None
    if parts.scheme not in SCHEMES:
        raise _no_url(source, f"it begins with none of {', '.join(f'{scheme}://' for scheme in SCHEMES)}")
    if parts.scheme == "unix":
        return f"unix://{_socket_of(parts.path, source)}"
    database = parts.path.strip("/")
    if database and not database.isdecimal():
        raise _no_url(source, "what follows the host is not the number of a database")
    host = parts.hostname or "localhost"
    return f"{parts.scheme}://{f'[{host}]' if ':' in host else host}:{port or _DEFAULT_PORT}/{database or 0}"


def _socket_of(path: str, source: str) -> str:
    if not path.startswith("/") or path == "/":
        raise _no_url(source, "it has no absolute path of a socket")
    return unquote(path)


def _url_of(host: str, environ: Mapping[str, str]) -> str:
    port = environ.get("REDIS_PORT", "") or _DEFAULT_PORT
    if not port.isdecimal() or not 0 < int(port) < 65536:
        raise _invalid(
            "REDIS_PORT",
            f"{port!r} is not the number of a port; if Kubernetes set it for a service named redis, set REDIS_URL instead",
        )
    if any(character in host for character in "/@?# "):
        raise _invalid("REDIS_HOST", "it is not the name or the address of a host; set REDIS_URL for a URL")
    password = environ.get("REDIS_PASSWORD", "")
    credentials = f":{quote(password, safe='')}@" if password else ""
    return f"redis://{credentials}{f'[{host}]' if ':' in host else host}:{port}/0"


def _no_url(source: str, what: str) -> OmniFlowError:
    return _invalid(
        source,
        f"{what}; write redis://host:6379/0, rediss:// for TLS, or unix:///path/to/socket, with user:password@ if needed",
    )


def _invalid(source: str, what: str) -> OmniFlowError:
    return OmniFlowError(
        Reason.INVALID_CONFIG, f"{source}: {what}", violations=(Violation(field=source, description=what),)
    )
