"""Errors of the platform, as clients see them: one class, told apart by `reason`.

    try:
        await client.run("assistant", text="hi")
    except OmniFlowError as error:
        if error.reason is Reason.TOO_MANY_CALLS:
            await asyncio.sleep(error.info.retry_after_s or 1.0)

`error.code` is the gRPC status code that follows from the reason, `error.violations` names the fields of a bad request,
and `error.is_stated` is False when no server said so: the client inferred it from a broken connection, or refused a
request before sending it.
"""

from omniflow_core.errors import CODE_OF, Code, ErrorInfo, OmniFlowError, Reason, Violation

__all__ = ["CODE_OF", "Code", "ErrorInfo", "OmniFlowError", "Reason", "Violation"]
