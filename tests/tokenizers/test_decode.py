"""Decode tokens to text, one token at a time, for every kind of tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models

from fastpack.tokenizers.bytes_tokenizer import BytesTokenizer
from fastpack.tokenizers.decode import TokenDecoder
from fastpack.tokenizers.tokenizer_spec import TokenizerSpec

TEXT = "Grün, 日本 and 🙂: it's\n\tthe  end"


@given(st.text(alphabet=st.characters(exclude_categories=["Cs"])))
def test_bytes(text: str) -> None:
    back = TokenDecoder(BytesTokenizer())
    ids = [*back.encode(text), 256]
    assert b"".join(back.piece(token) or b"" for token in ids).decode() == f"{text}<|endoftext|>"
    assert back.text(ids) == f"{text}<|endoftext|>"
    assert [back.piece(token) for token in (-1, 257)] == [None, None]
    assert (back.eos(), back.vocab_size) == (256, 257)


def test_byte_level_pieces_concatenate_to_the_text(golden: Path) -> None:
    folder = golden / "modalities" / "tokenizers" / "tok_bpe2000"
    for path in (folder, folder / "tokenizer.json"):
        back = TokenDecoder(TokenizerSpec.from_name(str(path)).build())
        ids = back.encode(TEXT)
        pieces = [back.piece(token) for token in ids]
        assert b"".join(piece or b"" for piece in pieces).decode() == TEXT == back.text(ids)
        assert b"\xe6" in pieces
        assert back.piece(0) == b"<|endoftext|>"
        assert [back.piece(token) for token in (-1, 2000, 2**40)] == [None, None, None]
        assert back.vocab_size == 2000


def test_eos_token_is_read_from_the_folder(golden: Path) -> None:
    folder = golden / "modalities" / "tokenizers"
    assert TokenDecoder(TokenizerSpec.from_name(str(folder / "tok_char250")).build()).eos() == 1
    assert TokenDecoder(TokenizerSpec.from_name(str(folder / "tok_bpe2000" / "tokenizer.json")).build()).eos() is None


@pytest.mark.parametrize(
    ("decoder", "vocab", "pieces"),
    [
        (decoders.Metaspace(), ["?", "▁a", "b"], [b"?", b" a", b"b"]),
        (decoders.ByteFallback(), ["?", "▁a", "<0xE6>", "<0xe6>"], [b"?", b" a", b"\xe6", b"<0xe6>"]),
        (decoders.WordPiece(), ["?", "a", "##b"], [b" ?", b" a", b"b"]),
        (decoders.BPEDecoder(), ["?", "a", "b</w>"], [b"?", b"a", b"b "]),
        (decoders.Sequence([decoders.Fuse(), decoders.ByteLevel()]), ["?", "Ġa", "x y"], [b"?", b" a", b"x y"]),
        (None, ["?", "a", "bé"], [b"?", b"a", "bé".encode()]),
    ],
)
def test_decoders_of_other_vocabularies(tmp_path: Path, decoder: Any, vocab: list[str], pieces: list[bytes]) -> None:
    path = tmp_path / "tokenizer.json"
    saved = Tokenizer(models.WordLevel({word: number for number, word in enumerate(vocab)}, unk_token=vocab[0]))
    if decoder is not None:
        saved.decoder = decoder
    saved.save(str(path))
    back = TokenDecoder(TokenizerSpec.from_name(str(path)).build())
    assert [back.piece(token) for token in range(len(vocab))] == pieces


def test_sentencepiece(tmp_path: Path) -> None:
    sentencepiece: Any = pytest.importorskip("sentencepiece")
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(f"the end of line {number} is here" for number in range(200)))
    sentencepiece.SentencePieceTrainer.Train(
        input=str(corpus), model_prefix=str(tmp_path / "m"), vocab_size=300, byte_fallback=True, minloglevel=2
    )
    back = TokenDecoder(TokenizerSpec.from_name(str(tmp_path / "m.model")).build())
    ids = back.encode("the end é")
    pieces = [back.piece(token) for token in ids]
    assert b"".join(piece or b"" for piece in pieces) == " the end é".encode()
    assert b"\xc3" in pieces
    assert back.text(ids) == "the end é"
    assert (back.piece(300), back.piece(-1)) == (None, None)
    assert back.eos() == 2
    assert back.piece(2) == b"</s>"


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("absent.model", FileNotFoundError, "absent.model is not there"),
        ("absent", FileNotFoundError, "absent is neither a directory nor a tokenizer.json"),
    ],
)
def test_names_that_are_not_tokenizers(name: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TokenizerSpec.from_name(name).build()
