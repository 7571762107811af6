"""Which threads share which rows of a kernel of :mod:`convoy.tir.row_stages`."""

from __future__ import annotations

from dataclasses import dataclass

#: Elements that a thread keeps in registers, best and at most.
_KEPT, MOST_KEPT = 32, 64
_WARP, _SMS = 32, 132
#: Threads that keep a GPU busy, and of a block.
_BUSY, _THREADS, _MOST_THREADS = 256 * _SMS, 128, 512
#: Fewest bytes that neighbouring threads load together, and a sector of memory.
_TOGETHER, _SECTOR = 64, 32
#: Loads of a thread; with fewer of them, joining rows costs more than loading them.
_FEW = 4


@dataclass(frozen=True)
class Layout:
    """Threads of a block: ``parts`` times ``lanes`` times ``beside``, the last one fastest.

    A thread has a lane's share of the elements of ``own`` rows next to each other, ``width``
    elements at a time. Threads beside it have the rows that follow.
    """

    rows: int
    columns: int
    own: int
    width: int
    lanes: int
    beside: int
    parts: int

    @property
    def threads(self) -> int:
        return self.parts * self.lanes * self.beside

    @property
    def groups(self) -> int:
        """Threads without those that share a row."""
        return self.rows // self.own

    @property
    def blocks(self) -> int:
        return -(-self.groups // (self.parts * self.beside))

    @property
    def vectors(self) -> int:
        """Vectors of a row."""
        return self.columns // self.width

    @property
    def steps(self) -> int:
        """Vectors of a thread in each of its rows."""
        return -(-self.vectors // self.lanes)

    @property
    def kept(self) -> int:
        """Elements of a thread."""
        return self.steps * self.width * self.own

    @property
    def warps(self) -> int:
        """Warps that share a row."""
        return max(1, self.lanes * self.beside // _WARP)


def along_columns(rows: int, columns: int, width: int, itemsize: int) -> Layout:
    """Rows whose elements lie next to each other: a part of a warp each, or several warps."""
    vectors, least = columns // width, _TOGETHER // (width * itemsize)
    lanes = 1
    while lanes < min(vectors, _WARP) and (
        rows * lanes < _BUSY or (lanes < least and vectors > _FEW * lanes)
    ):
        lanes *= 2
    while lanes * _KEPT < columns and lanes < _MOST_THREADS:
        lanes *= 2
    if lanes > _WARP:
        return Layout(rows, columns, 1, width, lanes, 1, 1)
    wanted = max(rows // (2 * _SMS), _WARP // lanes)
    parts = min(_THREADS // lanes, 1 << (wanted.bit_length() - 1))
    return Layout(rows, columns, 1, width, lanes, 1, parts)


def across_rows(rows: int, columns: int, width: int, itemsize: int) -> Layout:
    """Rows that lie next to each other: threads take neighbouring rows, and share each."""
    most = _WARP if columns < 32 * _WARP else 2 * _WARP
    own = width
    while own > 1 and rows // own * min(-(-columns // 4), most) < _BUSY:
        own //= 2
    groups, lanes = rows // own, 1
    while lanes < most and 2 * lanes <= columns:
        if -(-columns // lanes) * own <= _KEPT and groups * lanes >= _BUSY:
            break
        lanes *= 2
    beside = min(_WARP, _MOST_THREADS // lanes)
    while (beside // 2) * own * itemsize >= _SECTOR and -(-groups // beside) < 2 * _SMS:
        beside //= 2
    beside = max(beside, _WARP // lanes)
    return Layout(rows, columns, own, 1, lanes, beside, 1)
