"""A talking assistant: typed or spoken question in, streamed text and speech out, on a CPU.

    text  ─▶ parser ─────────────────────▶ llm ─▶ tokens to the caller
    audio ─▶ parser ─▶ asr ─▶ transcript ─▶ llm ─▶ passages ─▶ splitter ─▶ sentences ─▶ tts ─▶ audio to the caller

`parser`, `splitter` and `flow` are read by the control plane and import no engine; the modules that do (`chat_model`,
`checkpoint`, `recogniser`, `voice`) are imported by the `setup` of the interface that needs them, in its role's process.
"""
