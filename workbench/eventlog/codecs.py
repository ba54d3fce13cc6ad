"""Detect the codec of a log file by its first bytes, and decode it block by block.

Spark's lz4, snappy and lzf files are not the standard frame formats but block formats of the Java libraries that Spark
uses (lz4-java's LZ4BlockOutputStream, snappy-java's SnappyOutputStream, compress-lzf's LZFOutputStream), so the blocks
are read here, and a library decompresses each block. File names are ignored.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import struct
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, Literal

Codec = Literal["plain", "gzip", "zstd", "lz4", "snappy", "lzf"]
# Of file names; the content decides.
ENDINGS = ("zstd", "zst", "lz4", "lzf", "snappy", "gz")

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
MIN_ZSTD_HEAD_BYTES, ZSTD_HEAD_BYTES = 5, 18
MAX_ZSTD_BLOCK_BYTES = 128 << 10
MAGIC: tuple[tuple[bytes, Codec], ...] = (
    (b"\x1f\x8b", "gzip"),
    (ZSTD_MAGIC, "zstd"),
    (b"LZ4Block", "lz4"),
    (b"\x82SNAPPY\x00", "snappy"),
    (b"ZV\x00", "lzf"),
    (b"ZV\x01", "lzf"),
)
HEAD_BYTES = 16

# Small enough to lose little before damage, large enough to be fast.
READ_BYTES = 128 << 10
# Spark writes blocks of 32 KiB to 64 KiB; larger lengths are damaged headers.
MAX_BLOCK_BYTES = 64 << 20


class CodecFaultError(Exception):
    """The data are damaged or end too early; blocks before the fault are good."""


def detect_codec(head: bytes) -> Codec | None:
    """Codec of a file from its first 16 bytes; None when it is no event log.

    >>> detect_codec(b'{"Event":"SparkL'), detect_codec(b"LZ4Block%......."), detect_codec(b"PK..............")
    ('plain', 'lz4', None)
    """
    for magic, codec in MAGIC:
        if head.startswith(magic):
            return codec
    # Edited logs may begin with white space or a byte order mark.
    return "plain" if head.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{") else None


def decode_blocks(file: IO[bytes], codec: Codec) -> Iterator[bytes]:
    """Decode a file object into blocks of bytes; the blocks given before a fault are good."""
    return _READERS[codec](file)


def _decode_plain(file: IO[bytes]) -> Iterator[bytes]:
    while block := file.read(READ_BYTES):
        yield block


def _decode_gzip(file: IO[bytes]) -> Iterator[bytes]:
    # read1: at a fault, read() would lose collected data.
    reader = gzip.GzipFile(fileobj=file)
    try:
        while block := reader.read1(READ_BYTES):
            yield block
    except (EOFError, OSError, zlib.error) as error:
        raise CodecFaultError(f"damaged or cut gzip data ({error})") from error


def _decode_zstd(file: IO[bytes]) -> Iterator[bytes]:
    import zstandard

    yielded_bytes, start = 0, file.tell()
    try:
        for block in _decode_zstd_blocks(file, READ_BYTES):
            yielded_bytes += len(block)
            yield block
    except (zstandard.ZstdError, MemoryError) as error:
        # The failed call lost the data before the damage: read them again in small steps.
        file.seek(start)
        with contextlib.suppress(zstandard.ZstdError, MemoryError):
            for block in _decode_zstd_blocks(file, 512):
                if yielded_bytes < len(block):
                    yield block[yielded_bytes:]
                yielded_bytes = max(0, yielded_bytes - len(block))
        raise CodecFaultError(f"damaged zstd data ({error})") from error


def _decode_zstd_blocks(file: IO[bytes], size: int) -> Iterator[bytes]:
    import zstandard

    # Spark's zstd logs have several frames. A cut file just ends here: the missing
    # end of the application shows it.
    reader = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True, closefd=False)
    while block := reader.read(size):
        yield block


def iter_zstd_frames(file: IO[bytes], max_bytes: int) -> Iterator[tuple[int, int, int]]:
    """Start, end and largest content of the whole frames at the begin of a file, by headers of blocks (RFC 8878).

    It ends before a frame that may hold more than `max_bytes`.
    """
    end = 0
    while len(head := file.read(ZSTD_HEAD_BYTES)) >= MIN_ZSTD_HEAD_BYTES and head.startswith(ZSTD_MAGIC):
        start, descriptor = end, head[4]
        is_single_segment, size_flag = descriptor >> 5 & 1, descriptor >> 6
        end += 5 + (1 - is_single_segment) + (0, 1, 2, 4)[descriptor & 3] + (is_single_segment, 2, 4, 8)[size_flag]
        is_last, n_blocks = False, 0
        while not is_last:
            file.seek(end)
            block = file.read(3)
            if len(block) < 3:
                return
            header = int.from_bytes(block, "little")
            # A run of one byte is stored as that byte.
            is_last, is_run = bool(header & 1), header >> 1 & 3 == 1
            end += 3 + (1 if is_run else header >> 3)
            n_blocks += 1
            if n_blocks * MAX_ZSTD_BLOCK_BYTES > max_bytes:
                return
        end += 4 * (descriptor >> 2 & 1)
        if file.seek(0, io.SEEK_END) < end:
            return
        yield start, end, n_blocks * MAX_ZSTD_BLOCK_BYTES
        file.seek(end)


def _read_exactly(file: IO[bytes], count: int, part: str) -> bytes:
    data = file.read(count)
    while data and len(data) < count and (more := file.read(count - len(data))):
        data += more
    if len(data) < count:
        raise CodecFaultError(f"file ends in the middle of {part}")
    return data


def _check_length(value: int, noun: str) -> int:
    if not 0 <= value <= MAX_BLOCK_BYTES:
        raise CodecFaultError(f"{noun} says it is {value:,} bytes long")
    return value


def _decode_lz4(file: IO[bytes]) -> Iterator[bytes]:
    """lz4-java: "LZ4Block", a token, compressed and decompressed length, checksum (all little-endian), data."""
    import xxhash
    from cramjam import lz4

    while magic := file.read(1):
        header = magic + _read_exactly(file, 20, "an lz4 block header")
        if not header.startswith(b"LZ4Block"):
            raise CodecFaultError("no lz4 block where one should begin")
        method = header[8] & 0xF0
        stored, size, checksum = struct.unpack("<iii", header[9:])
        data = _read_exactly(file, _check_length(stored, "an lz4 block"), "an lz4 block")
        _check_length(size, "a decoded lz4 block")
        if size == 0:  # end mark; a further stream may follow
            continue
        block = data
        if method != 0x10:
            block = _decompress_block("lz4", lambda: bytes(lz4.decompress_block(data, output_len=size)))  # noqa: B023
        # lz4-java keeps 28 bits of the checksum.
        if len(block) != size or xxhash.xxh32_intdigest(block, 0x9747B28C) & 0x0FFFFFFF != checksum & 0xFFFFFFFF:
            raise CodecFaultError("an lz4 block does not match its checksum")
        yield block


def _decode_snappy(file: IO[bytes]) -> Iterator[bytes]:
    """snappy-java: a 16-byte header, then blocks of big-endian length and raw snappy; a header may come again."""
    from cramjam import snappy

    while word := file.read(1):
        word += _read_exactly(file, 3, "a snappy block length")
        if word == b"\x82SNA":
            if _read_exactly(file, 12, "a snappy header")[:4] != b"PPY\x00":
                raise CodecFaultError("damaged snappy header")
            continue
        data = _read_exactly(file, _check_length(struct.unpack(">i", word)[0], "a snappy block"), "a snappy block")
        if data:
            size = _decompress_block("snappy", lambda: snappy.decompress_raw_len(data))  # noqa: B023
            _check_length(size, "a decoded snappy block")
            yield _decompress_block("snappy", lambda: bytes(snappy.decompress_raw(data)))  # noqa: B023


def _decode_lzf(file: IO[bytes]) -> Iterator[bytes]:
    """compress-lzf: chunks "ZV", 0 (stored) or 1 (compressed), big-endian 16-bit lengths, data."""
    while magic := file.read(1):
        header = magic + _read_exactly(file, 4, "an lzf chunk header")
        kind, stored = header[2], struct.unpack(">H", header[3:])[0]
        if header[:2] != b"ZV" or kind > 1:
            raise CodecFaultError("no lzf chunk where one should begin")
        if kind == 0:
            yield _read_exactly(file, stored, "an lzf chunk")
        else:
            size = struct.unpack(">H", _read_exactly(file, 2, "an lzf chunk header"))[0]
            yield _decode_lzf_chunk(_read_exactly(file, stored, "an lzf chunk"), size)


def _decode_lzf_chunk(data: bytes, size: int) -> bytes:
    """Decode one compressed chunk: literal runs (control byte < 32) and back references.

    Existing packages are unmaintained or 26 MB large; a chunk is at most 64 KiB.
    """
    out = bytearray()
    at, end = 0, len(data)
    try:
        while at < end:
            control = data[at]
            at += 1
            if control < 32:
                out += data[at : at + control + 1]
                at += control + 1
                continue
            length = control >> 5
            if length == 7:
                length += data[at]
                at += 1
            start = len(out) - ((control & 31) << 8) - data[at] - 1
            at += 1
            length += 2
            if start < 0 or len(out) + length > size:
                raise CodecFaultError("damaged lzf chunk")
            # A reference may overlap its own output: then the piece repeats.
            piece = out[start : start + length]
            while len(piece) < length:
                piece += piece[: length - len(piece)]
            out += piece
    except IndexError as error:
        raise CodecFaultError("damaged lzf chunk") from error
    if len(out) != size:
        raise CodecFaultError("an lzf chunk has another length than its header")
    return bytes(out)


def _decompress_block(codec: Codec, call: Callable[[], Any]) -> Any:
    import cramjam

    try:
        return call()
    except (cramjam.DecompressionError, ValueError, OverflowError, MemoryError) as error:
        raise CodecFaultError(f"damaged {codec} block ({str(error)[:100]})") from error


_READERS: dict[Codec, Callable[[IO[bytes]], Iterator[bytes]]] = {
    "plain": _decode_plain,
    "gzip": _decode_gzip,
    "zstd": _decode_zstd,
    "lz4": _decode_lz4,
    "snappy": _decode_snappy,
    "lzf": _decode_lzf,
}
