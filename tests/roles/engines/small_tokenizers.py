"""Small tokenizers of the kinds that models come with, made on the spot."""

from __future__ import annotations

from typing import Any

import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

TEXTS = [
    "the quick brown fox jumps over the lazy dog",
    "The Quick Brown Fox. Does it jump? It does!",
    '{"name": "Ava", "age": 25, "tags": ["a", "b"], "is_well": true, "other": null}',
    "naïve café, 12 % of 345.67 €",
    "你好，世界。早上好",
]
END, BEGIN = "<end>", "<begin>"


def byte_level(size: int = 420) -> Tokenizer:
    """As GPT-2, Llama 3, Qwen: every byte is a letter of the vocabulary."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=[END, BEGIN], show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def byte_fallback(*, strips_first_blank: bool = True) -> Tokenizer:
    """As Llama 2, Mistral and (nothing stripped) Gemma: words marked for the blank before them, letters, bytes."""
    blank = "▁"
    words = ["the", "quick", "fox", "good", "你好", "ab", "a"]
    letters = sorted({letter for text in TEXTS[:3] for letter in text if letter != " "} | set("abcxyz你好 é") - {" "})
    pieces = ["<unk>", END, BEGIN, *(f"<0x{byte:02X}>" for byte in range(256)), blank, *letters]
    merges: list[tuple[str, str]] = []
    for word in words:
        for start in (word, blank + word):
            for size in range(1, len(start)):
                merge = (start[:size], start[size])
                if merge not in merges:
                    merges.append(merge)
                pieces.extend(piece for piece in (merge[1], "".join(merge)) if piece not in pieces)
    tokenizer = Tokenizer(
        models.BPE(
            vocab={piece: index for index, piece in enumerate(pieces)},
            merges=merges,
            byte_fallback=True,
            fuse_unk=True,
            unk_token="<unk>",
        )
    )
    steps: list[Any] = [decoders.Replace(blank, " "), decoders.ByteFallback(), decoders.Fuse()]
    replace = normalizers.Replace(" ", blank)
    if strips_first_blank:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(blank), replace])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = replace
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.add_special_tokens([END, BEGIN])
    return tokenizer


def metaspace() -> Tokenizer:
    """As T5 and XLM-R: pieces of a unigram model, without bytes."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=120, special_tokens=["<unk>", END, BEGIN], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def word_piece() -> Tokenizer:
    """As BERT: continuations are marked, blanks are put between words, and taken away before full stops."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=["<unk>", END, BEGIN], show_progress=False)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    return tokenizer


def fast(tokenizer: Tokenizer) -> Any:
    """The same as transformers hands it out."""
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, bos_token=BEGIN)
