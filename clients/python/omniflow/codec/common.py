"""Values of `omniflow.values` as messages of `omniflow.common.v1`, and back.

A message that breaks a rule of the contract raises OmniFlowError naming the field. What is in the message is copied
once at most; a payload that is elsewhere (a buffer, a chunked transfer, another process) must be fetched before it is
decoded.

    "hi"                       <->  Value(text="hi")
    Audio(b"RIFF…", "audio/wav") <-> Value(audio=Media(mime_type="audio/wav", payload=Payload(inline=b"RIFF…")))
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import google_crc32c
from google.protobuf import struct_pb2

from omniflow.common.v1 import tensor_pb2, value_pb2
from omniflow.values import (
    Action,
    Audio,
    Buffer,
    ElementType,
    Image,
    Json,
    Media,
    Signal,
    Tensor,
    Tokens,
    Value,
    ValueType,
    Video,
)
from omniflow_core.errors import OmniFlowError, Reason, invalid_field

MAX_JSON_DEPTH = 28
"""Nested lists and objects in a JSON value. A level costs up to three messages on the wire, and protobuf parsers refuse
more than 100 levels, of which our frames use up to ten."""

MAX_EXACT_INTEGER = 2**53
"""Integers beyond this are not exact as doubles."""

_VALUE_TYPES: Mapping[str, ValueType] = {
    "text": ValueType.TEXT,
    "tokens": ValueType.TOKENS,
    "tensor": ValueType.TENSOR,
    "image": ValueType.IMAGE,
    "audio": ValueType.AUDIO,
    "video": ValueType.VIDEO,
    "action": ValueType.ACTION,
    "data": ValueType.BYTES,
    "json": ValueType.JSON,
    "signal": ValueType.SIGNAL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueHeader:
    """What a value's message says besides its bytes; the fields that do not apply are empty."""

    type: ValueType
    mime_type: str = ""
    element_type: ElementType | None = None
    shape: tuple[int, ...] = ()


def value_to_proto(value: Value) -> value_pb2.Value:
    """The message of a value, its payload inline. Raises OmniFlowError for a value that the wire cannot carry."""
    message, data = split_value(value)
    if data is not None:
        cast("tensor_pb2.Payload", payload_of(message)).inline = data if type(data) is bytes else bytes(data)
    return message


def split_value(value: Value) -> tuple[value_pb2.Value, Buffer | None]:
    """The message of a value with an unset payload, and the payload's bytes, not copied; None for kinds without one."""
    try:
        encode = _ENCODERS[type(value)]
    except KeyError:
        raise TypeError(f"{type(value).__name__} is no field value; wrap JSON as Json(...)") from None
    return encode(value)


def value_from_proto(message: value_pb2.Value, *, path: str = "value") -> Value:
    """The value of a message whose payload is inline.

    Raises INVALID_FIELD for a message without a kind, an unknown element type or a tensor whose bytes do not match its
    shape, and PROTOCOL_VIOLATION for a payload that has not been fetched; `path` is the field that they name.
    """
    kind = message.WhichOneof("kind")
    if kind == "text":
        return message.text
    if kind == "tokens":
        tokens = message.tokens
        return Tokens(
            tuple(tokens.ids), tokens.text, tuple(tokens.logprobs), tokens.completion, _alternatives(tokens, path)
        )
    if kind is None:
        raise invalid_field(path, "no kind of value is set")
    return _DECODERS[kind](message, path)


def value_with_payload(message: value_pb2.Value, data: Buffer, *, path: str = "value") -> Value:
    """The value of a message whose payload's bytes came apart from it; `data` is not copied."""
    kind = message.WhichOneof("kind")
    if kind == "data":
        return cast("Value", data)
    if kind == "tensor":
        return _tensor(message.tensor, data, path)
    if kind == "action":
        return Action(message.action.space, _tensor(message.action.values, data, f"{path}.action.values"))
    if kind in _MEDIA:
        return _media(_MEDIA[kind], getattr(message, kind), data)
    raise invalid_field(path, f"a {kind or 'missing'} value has no payload")


def payload_of(message: value_pb2.Value) -> tensor_pb2.Payload | None:
    """The payload inside a value, to read or to fill; None for kinds without one."""
    kind = message.WhichOneof("kind")
    if kind == "tensor":
        return message.tensor.payload
    if kind in _MEDIA:
        return cast("value_pb2.Media", getattr(message, kind)).payload
    if kind == "data":
        return message.data
    if kind == "action":
        return message.action.values.payload
    return None


def header_of(message: value_pb2.Value) -> ValueHeader:
    """The description of a value whose bytes are elsewhere."""
    kind = message.WhichOneof("kind")
    if kind is None:
        raise invalid_field("value", "no kind of value is set")
    if kind in _MEDIA:
        return ValueHeader(type=_VALUE_TYPES[kind], mime_type=getattr(message, kind).mime_type)
    if kind in ("tensor", "action"):
        spec = (message.tensor if kind == "tensor" else message.action.values).spec
        return ValueHeader(
            type=_VALUE_TYPES[kind], element_type=_element_type(spec, "value.spec"), shape=tuple(spec.shape)
        )
    return ValueHeader(type=_VALUE_TYPES[kind])


def crc32c(data: Buffer) -> int:
    """CRC-32C (Castagnoli) of the bytes, by hardware where there is some."""
    return int(google_crc32c.value(data if type(data) is bytes else bytes(data)))


# To messages.


def _alternatives(tokens: value_pb2.Tokens, path: str) -> tuple[tuple[tuple[int, float], ...], ...]:
    for index, message in enumerate(tokens.alternatives):
        if len(message.ids) != len(message.logprobs):
            raise invalid_field(
                f"{path}.tokens.alternatives[{index}]",
                f"{len(message.ids)} tokens with {len(message.logprobs)} log probabilities",
            )
    return tuple(tuple(zip(message.ids, message.logprobs, strict=True)) for message in tokens.alternatives)


def _encode_tokens(value: Tokens) -> tuple[value_pb2.Value, None]:
    message = value_pb2.Tokens(ids=value.ids, text=value.text, logprobs=value.logprobs, completion=value.completion)
    for alternatives in value.alternatives:
        message.alternatives.add(ids=[t for t, _ in alternatives], logprobs=[logprob for _, logprob in alternatives])
    return value_pb2.Value(tokens=message), None


def _encode_tensor(value: Tensor) -> tuple[value_pb2.Value, Buffer]:
    message = value_pb2.Value()
    _fill_spec(message.tensor, value)
    return message, value.data


def _encode_action(value: Action) -> tuple[value_pb2.Value, Buffer]:
    message = value_pb2.Value(action=value_pb2.Action(space=value.space))
    _fill_spec(message.action.values, value.values)
    return message, value.values.data


def _fill_spec(message: tensor_pb2.Tensor, value: Tensor) -> None:
    message.spec.element_type = cast("tensor_pb2.ElementType", value.element_type.value)
    message.spec.shape.extend(value.shape)


def _media_encoder(kind: str) -> Callable[[Media], tuple[value_pb2.Value, Buffer]]:
    def encode(value: Media) -> tuple[value_pb2.Value, Buffer]:
        message = value_pb2.Value()
        media: value_pb2.Media = getattr(message, kind)
        media.mime_type = value.mime_type
        media.item = value.item
        media.is_partial = value.is_partial
        if value.timestamp_s:
            _set_timestamp(media, value.timestamp_s)
        media.SetInParent()
        return message, value.data

    return encode


def _set_timestamp(media: value_pb2.Media, timestamp_s: float) -> None:
    if not math.isfinite(timestamp_s):
        raise invalid_field("timestamp", "not a finite number of seconds")
    nanos = round(timestamp_s * 1e9)
    # Both parts of a Duration have the same sign, so the division rounds towards zero.
    media.timestamp.seconds = int(math.copysign(abs(nanos) // 1_000_000_000, nanos))
    media.timestamp.nanos = int(math.copysign(abs(nanos) % 1_000_000_000, nanos))


def _encode_bytes(value: Buffer) -> tuple[value_pb2.Value, Buffer]:
    message = value_pb2.Value()
    message.data.SetInParent()
    return message, value


def _encode_json(value: Json) -> tuple[value_pb2.Value, None]:
    message = value_pb2.Value()
    _fill_json(message.json, value.value, MAX_JSON_DEPTH)
    return message, None


def _fill_json(target: struct_pb2.Value, value: Any, depth: int) -> None:
    if depth < 0:
        raise invalid_field("json", f"nested more than {MAX_JSON_DEPTH} levels deep")
    if value is None:
        target.null_value = struct_pb2.NULL_VALUE
    elif isinstance(value, bool):
        target.bool_value = value
    elif isinstance(value, str):
        target.string_value = value
    elif isinstance(value, int | float):
        target.number_value = _json_number(value)
    elif isinstance(value, Mapping):
        target.struct_value.SetInParent()
        fields = target.struct_value.fields
        for key, item in value.items():
            if not isinstance(key, str):
                raise invalid_field("json", f"the key {key!r} is no string")
            _fill_json(fields[key], item, depth - 1)
    elif isinstance(value, list | tuple):
        target.list_value.SetInParent()
        for item in value:
            _fill_json(target.list_value.values.add(), item, depth - 1)
    else:
        raise invalid_field("json", f"{type(value).__name__} is no JSON value")


def _json_number(value: float) -> float:
    """A number as a double. Raises INVALID_FIELD rather than sending another number than the caller's."""
    if isinstance(value, int) and abs(value) > MAX_EXACT_INTEGER:
        raise invalid_field("json", "an integer beyond 2**53 is not exact as a double; send it as a string")
    if not math.isfinite(value):
        raise invalid_field("json", "NaN and infinity are no JSON numbers")
    return float(value)


_ENCODERS: Mapping[type, Callable[[Any], tuple[value_pb2.Value, Buffer | None]]] = {
    str: lambda value: (value_pb2.Value(text=value), None),
    Tokens: _encode_tokens,
    Tensor: _encode_tensor,
    Image: _media_encoder("image"),
    Audio: _media_encoder("audio"),
    Video: _media_encoder("video"),
    Action: _encode_action,
    bytes: _encode_bytes,
    bytearray: _encode_bytes,
    memoryview: _encode_bytes,
    Json: _encode_json,
    Signal: lambda value: (value_pb2.Value(signal=value_pb2.Signal()), None),
}


# From messages.


def _decode_tensor(message: value_pb2.Value, path: str) -> Tensor:
    return _tensor(message.tensor, _inline(message.tensor.payload, path), path)


def _decode_action(message: value_pb2.Value, path: str) -> Action:
    values = message.action.values
    return Action(message.action.space, _tensor(values, _inline(values.payload, path), f"{path}.action.values"))


def _tensor(message: tensor_pb2.Tensor, data: Buffer, path: str) -> Tensor:
    kind = _element_type(message.spec, path)
    try:
        return Tensor(kind, tuple(message.spec.shape), data)
    except ValueError as error:
        raise invalid_field(path, str(error)) from None


def _element_type(spec: tensor_pb2.TensorSpec, path: str) -> ElementType:
    try:
        return ElementType(spec.element_type)
    except ValueError:
        raise invalid_field(f"{path}.spec.element_type", f"{spec.element_type} is no element type") from None


_MEDIA: Mapping[str | None, type[Image | Audio | Video]] = {"image": Image, "audio": Audio, "video": Video}


def _decode_media(message: value_pb2.Value, path: str) -> Value:
    kind = cast("str", message.WhichOneof("kind"))
    media: value_pb2.Media = getattr(message, kind)
    return _media(_MEDIA[kind], media, _inline(media.payload, path))


def _media(kind: type[Image | Audio | Video], media: value_pb2.Media, data: Buffer) -> Image | Audio | Video:
    timestamp_s = media.timestamp.seconds + media.timestamp.nanos / 1e9 if media.HasField("timestamp") else 0.0
    return kind(data, media.mime_type, media.item, timestamp_s, media.is_partial)


def _inline(payload: tensor_pb2.Payload, path: str) -> bytes:
    place = payload.WhichOneof("place")
    if place is None or place == "inline":
        return payload.inline
    raise OmniFlowError(
        Reason.PROTOCOL_VIOLATION,
        f"{path}: its bytes are in a {place} payload that has not been fetched",
        metadata={"field": path, "place": place},
    )


def _json_value(message: struct_pb2.Value) -> Any:
    kind = message.WhichOneof("kind")
    if kind == "string_value":
        return message.string_value
    if kind == "number_value":
        return _python_number(message.number_value)
    if kind == "bool_value":
        return message.bool_value
    if kind == "struct_value":
        return {key: _json_value(item) for key, item in message.struct_value.fields.items()}
    if kind == "list_value":
        return [_json_value(item) for item in message.list_value.values]
    return None


def _python_number(value: float) -> int | float:
    """Whole numbers come back as int, so that a count or an index can be used as one; they compare equal anyway."""
    is_whole = (
        value.is_integer() and abs(value) <= MAX_EXACT_INTEGER and not (value == 0 and math.copysign(1, value) < 0)
    )
    return int(value) if is_whole else value


_DECODERS: Mapping[str, Callable[[value_pb2.Value, str], Value]] = {
    "tensor": _decode_tensor,
    "image": _decode_media,
    "audio": _decode_media,
    "video": _decode_media,
    "action": _decode_action,
    "data": lambda message, path: _inline(message.data, path),
    "json": lambda message, path: Json(_json_value(message.json)),
    "signal": lambda message, path: Signal(),
}
