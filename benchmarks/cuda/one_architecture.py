"""Keeps only one architecture's device code in a library, and compresses the library.

NVIDIA's libraries contain their kernels once per architecture: NCCL's is 300 MB, of which one card uses a ninth. This
makes a file that can be copied to a machine without a network. Offsets do not change; removed code becomes zeros, which
take no space when compressed. NVIDIA's own nvprune does this for static libraries only.

    python one_architecture.py libnccl.so.2 90 libnccl.so.2.xz     sm_90 stays
    python one_architecture.py --unpack libnccl.so.2.xz libnccl.so.2
"""

from __future__ import annotations

import lzma
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

# Device code lies in containers: this head (magic, version, bytes of the head), the bytes of all images, the images.
# An image has a head of its own: kind, version, bytes of the head, bytes after it, ..., architecture. NVIDIA does not
# document it; the sizes that must fit one another are checked.
_CONTAINER = struct.pack("<IHH", 0xBA55ED50, 1, 16)
_CONTAINER_HEAD = 16
_IMAGE = struct.Struct("<HHIQ12xI")
_CUBIN = 2  # the other kind is PTX
_FAST = 2  # images are compressed already; packing is for the zeros


def keep_only(library: bytearray, architecture: int) -> int:
    """Removes the images of other architectures, and all PTX, from a library in place.

    Returns:
        How many bytes of images are left.

    Raises:
        ValueError: The library is not laid out as expected.
    """
    left = 0
    at = library.find(_CONTAINER)
    while at >= 0:
        (size,) = struct.unpack_from("<Q", library, at + len(_CONTAINER))
        first, end = at + _CONTAINER_HEAD, at + _CONTAINER_HEAD + size
        kept = b"".join(
            image for kind, of, image in _images(library, first, end) if (kind, of) == (_CUBIN, architecture)
        )
        library[first:end] = kept.ljust(size, b"\0")
        struct.pack_into("<Q", library, at + len(_CONTAINER), len(kept))
        left += len(kept)
        at = library.find(_CONTAINER, end)
    return left


def _images(library: bytearray, at: int, end: int) -> Iterator[tuple[int, int, bytes]]:
    """Kind, architecture and bytes of each image of a container."""
    while at < end:
        fits = at + _IMAGE.size <= end
        kind, _, head, body, architecture = _IMAGE.unpack_from(library, at) if fits else (0,) * 5
        if head < _IMAGE.size or at + head + body > end:
            raise ValueError(f"the device code at byte {at} is not laid out as expected")
        yield kind, architecture, bytes(library[at : at + head + body])
        at += head + body


def main(arguments: list[str]) -> int:
    """Packs or unpacks; returns the exit status."""
    if arguments[0] == "--unpack":
        Path(arguments[2]).write_bytes(lzma.decompress(Path(arguments[1]).read_bytes()))
        return 0
    library = bytearray(Path(arguments[0]).read_bytes())
    try:
        left = keep_only(library, int(arguments[1]))
    except ValueError as problem:
        print(f"{arguments[0]}: {problem}", file=sys.stderr)
        return 1
    if left == 0:
        print(f"{arguments[0]} has no code for sm_{arguments[1]}", file=sys.stderr)
        return 1
    Path(arguments[2]).write_bytes(lzma.compress(library, preset=_FAST))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
