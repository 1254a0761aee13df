"""What URLs say, and which ones are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from omniflow_core.errors import OmniFlowError, Reason
from omniflow_server.data.metadata.endpoint import Endpoint, Tls, endpoint_of


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        ("redis://", Endpoint(host="localhost", port=6379)),
        ("valkey://store", Endpoint(host="store", port=6379)),
        (
            "redis://u:p%40ss%2F%25@[::1]:7000/3",
            Endpoint(host="::1", port=7000, username="u", password="p@ss/%", database=3),
        ),
        ("redis://:p@h/", Endpoint(host="h", password="p")),
        ("redis://u@h", Endpoint(host="h", username="u")),
        (
            "redis://u:p@h/3?db=4&username=v&password=a%25b+c",
            Endpoint(host="h", username="v", password="a%b c", database=4),
        ),
        ("redis://h?db=&password=", Endpoint(host="h")),
        ("unix:///run/a%20b.sock?db=2&password=p", Endpoint(path="/run/a b.sock", password="p", database=2)),
        ("unix://u:p@/run/s", Endpoint(path="/run/s", username="u", password="p")),
        ("rediss://h", Endpoint(host="h", tls=Tls())),
        ("valkeys://h:1/2", Endpoint(host="h", port=1, database=2, tls=Tls())),
        ("rediss://h?ssl_check_hostname=No", Endpoint(host="h", tls=Tls(is_name_checked=False))),
        ("rediss://h?ssl_check_hostname=True", Endpoint(host="h", tls=Tls())),
        ("rediss://h?ssl_cert_reqs=optional", Endpoint(host="h", tls=Tls())),
        (
            "rediss://h?ssl_cert_reqs=none&ssl_check_hostname=yes",
            Endpoint(host="h", tls=Tls(is_certificate_checked=False, is_name_checked=False)),
        ),
    ],
)
def test_endpoint_of_reads_the_url(url: str, endpoint: Endpoint) -> None:
    assert endpoint_of(url) == endpoint


def test_endpoint_of_reads_the_files_of_tls(tmp_path: Path) -> None:
    ca, certificate, key = (str(tmp_path / name) for name in ("ca", "certificate", "key"))
    for path in (ca, certificate, key):
        Path(path).touch()
    url = f"rediss://h?ssl_ca_certs={ca}&ssl_certfile={certificate}"
    assert endpoint_of(url).tls == Tls(authority=ca, certificate=certificate)
    assert endpoint_of(f"{url}&ssl_keyfile={key}").tls == Tls(authority=ca, certificate=certificate, key=key)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:secret@h?colour=red",
        "redis://:secret@h?ssl_ca_certs=/secret",
        "unix:///s?ssl_cert_reqs=none&password=secret",
        "redis://:secret@h?db=x",
        "redis://:secret@h?db=-1",
        "redis://:secret@h/x",
        "redis://:secret@h:port",
        "redis://:secret@[h",
        "rediss://:secret@h?ssl_cert_reqs=perhaps",
        "rediss://:secret@h?ssl_keyfile=/secret",
    ],
)
def test_url_that_sets_what_there_is_not_is_refused_and_not_quoted(url: str) -> None:
    with pytest.raises(OmniFlowError, match="has an option that is unknown or has a wrong value") as caught:
        endpoint_of(url)
    assert caught.value.reason is Reason.INVALID_CONFIG
    assert [violation.field for violation in caught.value.violations] == ["control.metadata_url"]
    assert "secret" not in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile"])
def test_file_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(OmniFlowError, match=f"{name} in its URL names /no/such/file, and there is no such file"):
        endpoint_of(f"rediss://h?{name}=/no/such/file")


def test_password_is_in_no_text_of_an_endpoint() -> None:
    assert "secret" not in repr(endpoint_of("redis://u:secret@h"))
