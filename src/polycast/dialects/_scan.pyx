# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The scans of scan.py at the speed of C; what they do and why is said there."""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.array cimport array, clone, resize
from libc.string cimport memchr, memcmp

from array import array as new_array

cdef array QUADS = new_array("q")


def pubs(const unsigned char[::1] block, Py_ssize_t position, Py_ssize_t topic_limit, Py_ssize_t payload_limit):
    cdef Py_ssize_t size = block.shape[0]
    cdef const unsigned char *base = NULL
    if size:
        base = &block[0]
    cdef list topics = []
    cdef list run_ends = []
    cdef Py_ssize_t room = (size - position) // 64 + 8
    cdef array starts = clone(QUADS, room, False)
    cdef array ends = clone(QUADS, room, False)
    cdef array bounds = clone(QUADS, room + 1, False)
    cdef Py_ssize_t count = 0, run_start = 0, need = 0
    cdef const unsigned char *topic = NULL
    cdef Py_ssize_t topic_size = 0
    cdef const unsigned char *name
    cdef const unsigned char *cursor
    cdef const unsigned char *end = base + size
    cdef const unsigned char *reach
    cdef Py_ssize_t name_size, length, digits
    cdef bint unfinished = False

    while True:
        cursor = base + position
        if end - cursor < 5:
            unfinished = memcmp(cursor, b"pub ", end - cursor) == 0
            break
        if memcmp(cursor, b"pub ", 4) != 0:
            break
        name = cursor + 4
        reach = end if end - name <= topic_limit + 1 else name + topic_limit + 1
        cursor = name
        while cursor < reach and cursor[0] != 32 and cursor[0] != 10 and cursor[0] != 13:
            cursor += 1
        if cursor == reach:
            unfinished = cursor - name <= topic_limit
            break
        name_size = cursor - name
        if cursor[0] != 32 or name_size == 0:
            break
        cursor += 1
        length = 0
        digits = 0
        while cursor < end and 48 <= cursor[0] <= 57 and digits < 11:
            length = length * 10 + (cursor[0] - 48)
            digits += 1
            cursor += 1
        if cursor == end:
            unfinished = digits < 11
            break
        if cursor[0] != 32 or digits == 0 or digits > 10 or length > payload_limit:
            break
        if digits > 1 and (cursor - digits)[0] == 48:
            break
        cursor += 1
        if end - cursor < length + 1:
            need = (cursor - base) - position + length + 1
            unfinished = True
            break
        if cursor[length] != 10:
            break
        if count == room:
            room *= 2
            resize(starts, room)
            resize(ends, room)
            resize(bounds, room + 1)
        if topic == NULL or name_size != topic_size or memcmp(name, topic, name_size) != 0:
            if count:
                run_ends.append(count)
            topics.append(PyBytes_FromStringAndSize(<const char *> name, name_size))
            topic = name
            topic_size = name_size
        starts.data.as_longlongs[count] = cursor - base
        ends.data.as_longlongs[count] = cursor - base + length
        bounds.data.as_longlongs[count] = position
        count += 1
        position = cursor - base + length + 1

    if count:
        run_ends.append(count)
    bounds.data.as_longlongs[count] = position
    resize(starts, count)
    resize(ends, count)
    resize(bounds, count + 1)
    return topics, run_ends, starts, ends, bounds, position, need, unfinished


def lines(const unsigned char[::1] block, Py_ssize_t position, Py_ssize_t topic_limit, Py_ssize_t line_limit,
          Py_ssize_t payload_limit):
    cdef Py_ssize_t size = block.shape[0]
    cdef const unsigned char *base = NULL
    if size:
        base = &block[0]
    cdef list topics = []
    cdef list run_ends = []
    cdef Py_ssize_t room = (size - position) // 64 + 8
    cdef array starts = clone(QUADS, room, False)
    cdef array ends = clone(QUADS, room, False)
    cdef array bounds = clone(QUADS, room + 1, False)
    cdef Py_ssize_t count = 0
    cdef const unsigned char *topic = NULL
    cdef Py_ssize_t topic_size = 0
    cdef const unsigned char *name
    cdef const unsigned char *space
    cdef const unsigned char *line_end
    cdef const unsigned char *end = base + size
    cdef Py_ssize_t name_size
    cdef bint unfinished = False

    while True:
        name = base + position
        line_end = NULL
        if name != end:
            line_end = <const unsigned char *> memchr(name, 10, end - name)
        if line_end == NULL:
            unfinished = end - name <= line_limit
            break
        if line_end == name or line_end - name > line_limit or (line_end - 1)[0] == 13:
            break
        space = <const unsigned char *> memchr(name, 32, line_end - name)
        if space == NULL:
            break
        name_size = space - name
        if name_size == 0 or name_size > topic_limit or line_end - space - 1 > payload_limit:
            break
        if memchr(name, 33, name_size) != NULL or memchr(name, 13, name_size) != NULL:
            break
        if count == room:
            room *= 2
            resize(starts, room)
            resize(ends, room)
            resize(bounds, room + 1)
        if topic == NULL or name_size != topic_size or memcmp(name, topic, name_size) != 0:
            if count:
                run_ends.append(count)
            topics.append(PyBytes_FromStringAndSize(<const char *> name, name_size))
            topic = name
            topic_size = name_size
        starts.data.as_longlongs[count] = space + 1 - base
        ends.data.as_longlongs[count] = line_end - base
        bounds.data.as_longlongs[count] = position
        count += 1
        position = line_end + 1 - base

    if count:
        run_ends.append(count)
    bounds.data.as_longlongs[count] = position
    resize(starts, count)
    resize(ends, count)
    resize(bounds, count + 1)
    return topics, run_ends, starts, ends, bounds, position, 0, unfinished
