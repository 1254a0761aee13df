"""Speaking and listening outside the graph: makes a spoken question, and checks what an answer sounds like.

    $ python -m omniflow_roles.models.assistant.tools say "Why is water important?" question.wav
    $ python -m omniflow_roles.models.assistant.tools hear question.wav
    {"heard": "why is water important"}
    $ python -m omniflow_roles.models.assistant.tools score demo.wav "Music is a form of ..."
    {"share": 0.9, "heard": "music is a form of ..."}

Runs in the assistant's environment; prints one JSON object. Each subcommand imports the engine that it needs, and no more.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from omniflow_roles.media.error import MediaError
from omniflow_roles.media.pcm import to_mono
from omniflow_roles.media.wav import parse_wav, write_wav
from omniflow_roles.models.assistant.readback import share_read_back


def say(text: str) -> bytes:
    """A WAV file of the spoken text."""
    from omniflow_roles.models.assistant.voice import Voice

    voice = Voice()
    return write_wav(b"".join(voice.speak(text)), voice.format)


def hear(wav: bytes) -> str:
    """What the recogniser understands of a WAV file. Raises MediaError."""
    from omniflow_roles.models.assistant.recogniser import Recogniser

    parsed = parse_wav(wav)
    return Recogniser().transcribe(to_mono(parsed.samples, parsed.format), parsed.format.rate_hz)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command line."""
    given = _parser().parse_args(arguments)
    try:
        result = _perform(given)
    except (MediaError, OSError) as error:
        raise SystemExit(f"{given.file}: {error}") from None
    json.dump(result, sys.stdout, ensure_ascii=False)
    sys.stdout.write("\n")


def _perform(given: argparse.Namespace) -> dict[str, object]:
    file = Path(given.file)
    if given.command == "say":
        wav = say(given.text)
        file.write_bytes(wav)
        return {"duration_s": round(parse_wav(wav).duration_s, 3)}
    heard = hear(file.read_bytes())
    if given.command == "hear":
        return {"heard": heard}
    return {"share": round(share_read_back(given.text, heard), 4), "heard": heard}


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Speak and listen with the assistant's own engines.")
    commands = parser.add_subparsers(dest="command", required=True)
    speak = commands.add_parser("say", help="speak a text into a WAV file")
    speak.add_argument("text")
    speak.add_argument("file")
    listen = commands.add_parser("hear", help="print what is said in a WAV file")
    listen.add_argument("file")
    score = commands.add_parser("score", help="print the share of a text's words that are heard in a WAV file")
    score.add_argument("file")
    score.add_argument("text")
    return parser


if __name__ == "__main__":
    main()
