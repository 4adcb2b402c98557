# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The scan of frames.py, in C."""

from cpython.array cimport array, clone
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcpy

from array import array as new_array

ctypedef const unsigned char *Bytes

cdef array QUADS = new_array("q")

cdef enum:
    ODD = -1
    UNKNOWN = 0


cdef struct Frame:
    Py_ssize_t header  # with the mask; or ODD or UNKNOWN
    Py_ssize_t size


cdef Frame read_plain(Bytes at, Py_ssize_t there, bint masked, Py_ssize_t limit) noexcept:
    cdef Frame odd = Frame(ODD, 0), unknown = Frame(UNKNOWN, 0)
    cdef uint64_t size, shortest = 0
    cdef Py_ssize_t wide = 0, i

    if there < 2:
        return unknown
    if (at[0] != 0x81 and at[0] != 0x82) or (at[1] & 0x80 != 0) != masked:
        return odd
    size = at[1] & 0x7F
    if size == 126:
        wide = 2
        shortest = 126
    elif size == 127:
        wide = 8
        shortest = 1 << 16
    if there < 2 + wide + 4 * masked:
        return unknown
    if wide:
        size = 0
        for i in range(wide):
            size = size << 8 | at[2 + i]
    if size < shortest or size > <uint64_t> limit:
        return odd
    return Frame(2 + wide + 4 * masked, <Py_ssize_t> size)


cdef void copy_masked(unsigned char *to, Bytes data, Py_ssize_t size, Bytes key) noexcept:
    cdef uint32_t half
    cdef uint64_t whole, eight
    cdef Py_ssize_t i = 0

    memcpy(&half, key, 4)
    whole = <uint64_t> half << 32 | half
    while i + 8 <= size:
        memcpy(&eight, data + i, 8)
        eight ^= whole
        memcpy(to + i, &eight, 8)
        i += 8
    while i < size:
        to[i] = data[i] ^ key[i & 3]
        i += 1


def frames(block, Py_ssize_t position, bint masked, Py_ssize_t limit):
    cdef const unsigned char[::1] view = block
    cdef Py_ssize_t size = view.shape[0], first = position, count = 0, room = 0, at, head
    cdef Bytes base = &view[0] if size else NULL
    cdef unsigned char *to = NULL
    cdef unsigned char *kinds
    cdef Frame frame
    cdef array starts, ends, bounds
    cdef bytes opcodes

    while True:
        frame = read_plain(base + position, size - position, masked, limit)
        if frame.header <= 0 or size - position < frame.header + frame.size:
            break
        position += frame.header + frame.size
        count += 1
    need = frame.header + frame.size if frame.header > 0 else 0
    unfinished = frame.header != ODD

    starts, ends, bounds = clone(QUADS, count, False), clone(QUADS, count, False), clone(QUADS, count + 1, False)
    opcodes = PyBytes_FromStringAndSize(NULL, count)
    kinds = <unsigned char *> PyBytes_AS_STRING(opcodes)
    found = block
    at = first
    if masked:
        room = position - first - 4 * count
        found = PyBytes_FromStringAndSize(NULL, room)
        to = <unsigned char *> PyBytes_AS_STRING(found)
        at = 0
    for i in range(count):
        frame = read_plain(base + first, size - first, masked, limit)
        head = frame.header - 4 * masked
        bounds.data.as_longlongs[i] = at
        starts.data.as_longlongs[i] = at + head
        ends.data.as_longlongs[i] = at + head + frame.size
        kinds[i] = base[first] & 15
        if masked:
            memcpy(to + at, base + first, head)
            to[at + 1] &= 0x7F
            copy_masked(to + at + head, base + first + frame.header, frame.size, base + first + head)
        at += head + frame.size
        first += frame.header + frame.size
    bounds.data.as_longlongs[count] = at
    return found, starts, ends, bounds, opcodes, position, need, bool(unfinished)


def mask(const unsigned char[::1] data, const unsigned char[::1] key):
    cdef Py_ssize_t size = data.shape[0]
    cdef bytes out = PyBytes_FromStringAndSize(NULL, size)
    if size:
        copy_masked(<unsigned char *> PyBytes_AS_STRING(out), &data[0], size, &key[0])
    return out
