"""Encoders and decoders for the framings of Spark's event logs, written from the layouts and sharing no code with
`workbench`: what they agree on, two readings of the format agree on. `tests/test_samples.py` has Spark's own classes
read what the encoders wrote.

Layouts (LE, BE: byte order of an integer of 4 bytes if not said otherwise):

lz4 (lz4-java `LZ4BlockOutputStream`), blocks one after another, ended by a block of length 0:
    "LZ4Block" | token: 0x10 stored or 0x20 compressed, plus log2(block size) - 10 | LE compressed length
    | LE original length | LE checksum: XXH32 of the original bytes, seed 0x9747b28c, its low 28 bits | bytes
snappy (snappy-java `SnappyOutputStream`), a head, then blocks:
    82 "SNAPPY" 00 | BE version 1 | BE oldest compatible version 1, then BE length | raw snappy block
lzf (compress-lzf `LZFOutputStream`), chunks of at most 65,535 bytes:
    "ZV" 00 | BE 2-byte length | bytes as they are
    "ZV" 01 | BE 2-byte compressed length | BE 2-byte original length | LZF bytes
  LZF bytes: a control byte below 32 announces control + 1 literal bytes; any other says length - 2 in its upper 3 bits
  (7: the next byte is added) and, with one more byte, distance - 1 in 13 bits.
zstd and gzip: standard frames and members, one after another.

Of the first three, too, several streams may follow one another in one file.
"""

from __future__ import annotations

import gzip as gzip_module
import io
import struct
from collections.abc import Callable, Iterator

import cramjam
import xxhash
import zstandard

LZ4_SEED = 0x9747B28C
LZ4_HEAD = struct.Struct("<8sBiiI")
SNAPPY_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
LZF_LONGEST_MATCH = 264
LZF_FARTHEST = 8192


def _pieces(content: bytes, size: int) -> Iterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


def lz4(content: bytes, *, piece_bytes: int = 32768, stored: bool = False) -> bytes:
    """As lz4-java's block stream; `stored` blocks carry the bytes as they are."""
    level = max(0, (piece_bytes - 1).bit_length() - 10)
    out = bytearray()
    for piece in _pieces(content, piece_bytes):
        body = piece if stored else bytes(cramjam.lz4.compress_block(piece, store_size=False))
        checksum = xxhash.xxh32_intdigest(piece, LZ4_SEED) & 0x0FFFFFFF
        out += LZ4_HEAD.pack(b"LZ4Block", (0x10 if stored else 0x20) | level, len(body), len(piece), checksum) + body
    return bytes(out) + LZ4_HEAD.pack(b"LZ4Block", 0x10 | level, 0, 0, 0)


def snappy(content: bytes, *, piece_bytes: int = 32768) -> bytes:
    """As snappy-java's stream."""
    blocks = (bytes(cramjam.snappy.compress_raw(piece)) for piece in _pieces(content, piece_bytes))
    return SNAPPY_HEAD + b"".join(struct.pack(">i", len(block)) + block for block in blocks)


def lzf(content: bytes, *, piece_bytes: int = 65535, stored: bool = False) -> bytes:
    """As compress-lzf's stream; a piece that does not shrink is stored, as there."""
    out = bytearray()
    for piece in _pieces(content, piece_bytes):
        body = piece if stored else _lzf_compressed(piece)
        if len(body) < len(piece):
            out += b"ZV\x01" + struct.pack(">HH", len(body), len(piece)) + body
        else:
            out += b"ZV\x00" + struct.pack(">H", len(piece)) + piece
    return bytes(out)


def zstd(content: bytes, *, piece_bytes: int = 32768) -> bytes:
    """Several frames without a content size, as a stream writer makes them."""
    compressor = zstandard.ZstdCompressor(level=1, write_content_size=False, write_checksum=True)
    return b"".join(compressor.compress(piece) for piece in _pieces(content, piece_bytes))


def gzip(content: bytes, *, piece_bytes: int = 32768) -> bytes:
    """Several members."""
    return b"".join(gzip_module.compress(piece, mtime=0) for piece in _pieces(content, piece_bytes))


def plain(content: bytes) -> bytes:
    """The bytes as they are."""
    return content


ENCODERS: dict[str, Callable[..., bytes]] = {
    "plain": plain,
    "gzip": gzip,
    "zstd": zstd,
    "lz4": lz4,
    "snappy": snappy,
    "lzf": lzf,
}


def _lzf_compressed(piece: bytes) -> bytes:
    out, literals, at = bytearray(), bytearray(), 0
    seen: dict[bytes, int] = {}  # where three bytes stood last
    while at < len(piece):
        before = seen.get(piece[at : at + 3], -1)
        seen[piece[at : at + 3]] = at
        if before < 0 or at - before > LZF_FARTHEST or at + 3 > len(piece):
            literals.append(piece[at])
            at += 1
            continue
        length = _match_length(piece, before, at)
        out += _lzf_literals(literals) + _lzf_reference(at - before, length)
        literals.clear()
        at += length
    return bytes(out + _lzf_literals(literals))


def _match_length(piece: bytes, before: int, at: int) -> int:
    length = 3
    while length < LZF_LONGEST_MATCH and at + length < len(piece) and piece[before + length] == piece[at + length]:
        length += 1
    return length


def _lzf_literals(literals: bytearray) -> bytes:
    return b"".join(bytes([len(run) - 1]) + run for run in _pieces(bytes(literals), 32))


def _lzf_reference(distance: int, length: int) -> bytes:
    high, low = divmod(distance - 1, 256)
    if length - 2 < 7:
        return bytes([(length - 2) << 5 | high, low])
    return bytes([7 << 5 | high, length - 9, low])


def decode(data: bytes, codec: str) -> bytes:
    """The content of a whole, sound file."""
    return DECODERS[codec](data)


def _read_lz4(data: bytes) -> bytes:
    out, at = [], 0
    while at < len(data):
        magic, token, packed, size, checksum = LZ4_HEAD.unpack_from(data, at)
        at += LZ4_HEAD.size
        assert magic == b"LZ4Block"
        body = data[at : at + packed]
        at += packed
        if token & 0x20:
            body = bytes(cramjam.lz4.decompress_block(body, output_len=size))
        assert len(body) == size
        assert not size or xxhash.xxh32_intdigest(body, LZ4_SEED) & 0x0FFFFFFF == checksum
        out.append(body)
    return b"".join(out)


def _read_snappy(data: bytes) -> bytes:
    out, at = [], 0
    while at < len(data):
        if data.startswith(SNAPPY_HEAD, at):
            at += len(SNAPPY_HEAD)
            continue
        (size,) = struct.unpack_from(">i", data, at)
        out.append(bytes(cramjam.snappy.decompress_raw(data[at + 4 : at + 4 + size])))
        at += 4 + size
    return b"".join(out)


def _read_lzf(data: bytes) -> bytes:
    out, at = [], 0
    while at < len(data):
        assert data[at : at + 2] == b"ZV"
        packed = data[at + 2] == 1
        (size,) = struct.unpack_from(">H", data, at + 3)
        at += 7 if packed else 5
        out.append(_lzf_expanded(data[at : at + size]) if packed else data[at : at + size])
        at += size
    return b"".join(out)


def _lzf_expanded(body: bytes) -> bytes:
    out, at = bytearray(), 0
    while at < len(body):
        control = body[at]
        at += 1
        if control < 32:
            out += body[at : at + control + 1]
            at += control + 1
            continue
        length = control >> 5
        if length == 7:
            length += body[at]
            at += 1
        start = len(out) - ((control & 31) << 8 | body[at]) - 1
        at += 1
        for position in range(start, start + length + 2):  # byte by byte, since a match may reach into itself
            out.append(out[position])
    return bytes(out)


def _read_zstd(data: bytes) -> bytes:
    return zstandard.ZstdDecompressor().stream_reader(io.BytesIO(data), read_across_frames=True).read()


DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "plain": plain,
    "gzip": gzip_module.decompress,
    "zstd": _read_zstd,
    "lz4": _read_lz4,
    "snappy": _read_snappy,
    "lzf": _read_lzf,
}
