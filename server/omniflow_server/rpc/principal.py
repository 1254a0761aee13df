"""Who asks: the tenant of a request, from its metadata."""

from __future__ import annotations

import re

from omniflow.rpc_errors import ServicerContext
from omniflow_core.errors import invalid_field

TENANT_KEY = "x-omniflow-tenant"
DEFAULT_TENANT = "default"
_TENANT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")


def tenant_of(context: ServicerContext) -> str:
    """The tenant; `default` without the header. The header is trusted: the ingress sets it from credentials."""
    for key, value in context.invocation_metadata() or ():
        if key == TENANT_KEY:
            tenant = value if isinstance(value, str) else value.decode(errors="replace")
            if not _TENANT.fullmatch(tenant):
                raise invalid_field(TENANT_KEY, "at most 128 letters, digits, dots, dashes and underscores")
            return tenant
    return DEFAULT_TENANT
