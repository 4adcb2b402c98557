# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The scans of scan.py, in C."""

from cpython.array cimport array, clone, resize
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.object cimport Py_SIZE
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdlib cimport free, realloc
from libc.string cimport memchr, memcmp, memcpy

from array import array as new_array

ctypedef const unsigned char *Bytes

cdef array QUADS = new_array("q")
cdef unsigned char NOTHING = 0

cdef enum:
    NAMES = 16384
    NAME_BYTES = 64
    LARGE_BYTES = 65536  # the GIL is released for larger blocks: to get it back takes longer than a small one

cdef PyObject *names[NAMES]
"""Topics seen lately, by their hash: a topic that comes again needs no new object, and its hash is known."""


cdef object name_of(Bytes text, Py_ssize_t size):
    cdef unsigned long long mixed = size, word
    cdef Py_ssize_t i = 0
    cdef PyObject **slot
    if size > NAME_BYTES:
        return PyBytes_FromStringAndSize(<const char *> text, size)
    while i < size:
        word = 0
        memcpy(&word, text + i, 8 if size - i > 8 else size - i)
        mixed = (mixed ^ word) * 0x9E3779B97F4A7C15U
        mixed ^= mixed >> 29
        i += 8
    slot = &names[mixed % NAMES]
    if slot[0] != NULL and Py_SIZE(<object> slot[0]) == size and memcmp(PyBytes_AS_STRING(<object> slot[0]), text, size) == 0:
        return <object> slot[0]
    name = PyBytes_FromStringAndSize(<const char *> text, size)
    Py_XDECREF(slot[0])
    Py_INCREF(name)
    slot[0] = <PyObject *> name
    return name


cdef struct Run:
    Bytes topic
    Py_ssize_t size
    Py_ssize_t end


cdef struct Stop:
    Py_ssize_t position
    Py_ssize_t need  # the length of an incomplete frame, if it is known
    bint unfinished


cdef inline Stop stop_at(Py_ssize_t position, Py_ssize_t need, bint unfinished) noexcept nogil:
    cdef Stop stop
    stop.position, stop.need, stop.unfinished = position, need, unfinished
    return stop


cdef class Columns:
    """The columns of a scan."""

    cdef array starts, ends, bounds
    cdef Py_ssize_t count, room, runs, run_room
    cdef Run *run

    def __cinit__(self, Py_ssize_t size):
        self.starts, self.ends, self.bounds = clone(QUADS, 0, False), clone(QUADS, 0, False), clone(QUADS, 0, False)
        self.set_room(size // 64 + 8)

    def __dealloc__(self):
        free(self.run)

    cdef int set_room(self, Py_ssize_t room) except -1:
        self.room = room
        resize(self.starts, room)
        resize(self.ends, room)
        return resize(self.bounds, room + 1)

    cdef inline int add(self, Bytes name, Py_ssize_t size, Py_ssize_t bound, Py_ssize_t start, Py_ssize_t end) except -1 nogil:
        if self.count == self.room:
            with gil:
                self.set_room(2 * self.room)
        self.extend_run(name, size)
        self.starts.data.as_longlongs[self.count] = start
        self.ends.data.as_longlongs[self.count] = end
        self.bounds.data.as_longlongs[self.count] = bound
        self.count += 1
        return 0

    cdef inline bint continues(self, Bytes name, Py_ssize_t size) noexcept nogil:
        """Whether the last message has this topic."""
        cdef Run *run
        if not self.runs:
            return False
        run = &self.run[self.runs - 1]
        return size == run.size and memcmp(name, run.topic, size) == 0

    cdef inline int extend_run(self, Bytes name, Py_ssize_t size) except -1 nogil:
        cdef Run *run
        if not self.continues(name, size):
            if self.runs == self.run_room:
                self.run_room = 2 * self.run_room + 16
                run = <Run *> realloc(self.run, self.run_room * sizeof(Run))
                if run == NULL:
                    with gil:
                        raise MemoryError()
                self.run = run
            self.run[self.runs].topic, self.run[self.runs].size = name, size
            self.runs += 1
        self.run[self.runs - 1].end = self.count + 1
        return 0

    cdef int add_body(self, Bytes base, Py_ssize_t bound, Py_ssize_t begin, Py_ssize_t topic_size,
                      Py_ssize_t end) except -1 nogil:
        return self.add(base + begin, topic_size, bound, begin + topic_size + (topic_size > 0), end)

    cdef Py_ssize_t topic_in(self, Bytes body, Py_ssize_t size, int separator, Py_ssize_t topic_limit) except -1 nogil:
        """The length of the topic at the start of a body; 0: there is none."""
        cdef Bytes end
        if size > topic_limit + 1:
            size = topic_limit + 1
        end = <Bytes> memchr(body, separator, size) if size else NULL
        if end == NULL:
            return 0
        size = end - body
        return size if self.continues(body, size) or is_utf8(body, size) else 0

    cdef list topics(self):
        return [name_of(self.run[i].topic, self.run[i].size) for i in range(self.runs)]

    cdef list run_ends(self):
        return [self.run[i].end for i in range(self.runs)]

    cdef tuple close(self, Stop stop):
        self.bounds.data.as_longlongs[self.count] = stop.position
        self.set_room(self.count)
        return (
            self.topics(), self.run_ends(), self.starts, self.ends, self.bounds, stop.position, stop.need,
            stop.unfinished,
        )


cdef bint is_utf8(Bytes text, Py_ssize_t size) except -1 nogil:
    cdef Py_ssize_t i = 0
    while i < size and text[i] < 128:
        i += 1
    if i == size:
        return True
    with gil:
        try:
            PyUnicode_DecodeUTF8(<const char *> text, size, NULL)
        except UnicodeDecodeError:
            return False
        return True


cdef Bytes begin_of(const unsigned char[::1] block):
    return &block[0] if block.shape[0] else &NOTHING


cdef int scan_pubs(Bytes base, Py_ssize_t size, Py_ssize_t position, Py_ssize_t topic_limit, Py_ssize_t payload_limit,
                   Columns columns, Stop *stop) except -1 nogil:
    cdef Bytes end = base + size, name, cursor, reach
    cdef Py_ssize_t name_size, length, digits

    while True:
        cursor = base + position
        if end - cursor < 5:
            stop[0] = stop_at(position, 0, memcmp(cursor, b"pub ", end - cursor) == 0)
            return 0
        if memcmp(cursor, b"pub ", 4) != 0:
            break
        name = cursor + 4
        reach = end if end - name <= topic_limit + 1 else name + topic_limit + 1
        cursor = name
        while cursor < reach and cursor[0] != 32 and cursor[0] != 10 and cursor[0] != 13:
            cursor += 1
        name_size = cursor - name
        if cursor == reach:
            stop[0] = stop_at(position, 0, name_size <= topic_limit)
            return 0
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
            stop[0] = stop_at(position, 0, digits < 11)
            return 0
        if cursor[0] != 32 or digits == 0 or digits > 10 or length > payload_limit:
            break
        if digits > 1 and (cursor - digits)[0] == 48:
            break
        cursor += 1
        if end - cursor < length + 1:
            stop[0] = stop_at(position, (cursor - base) - position + length + 1, True)
            return 0
        if cursor[length] != 10:
            break
        columns.add(name, name_size, position, cursor - base, cursor - base + length)
        position = cursor - base + length + 1
    stop[0] = stop_at(position, 0, False)
    return 0


def pubs(const unsigned char[::1] block, Py_ssize_t position, Py_ssize_t topic_limit, Py_ssize_t payload_limit):
    cdef Bytes base = begin_of(block)
    cdef Py_ssize_t size = block.shape[0]
    cdef Columns columns = Columns(size - position)
    cdef Stop stop

    if size - position > LARGE_BYTES:
        with nogil:
            scan_pubs(base, size, position, topic_limit, payload_limit, columns, &stop)
    else:
        scan_pubs(base, size, position, topic_limit, payload_limit, columns, &stop)
    return columns.close(stop)


cdef int scan_lines(Bytes base, Py_ssize_t size, Py_ssize_t position, Py_ssize_t topic_limit, Py_ssize_t line_limit,
                    Py_ssize_t payload_limit, Columns columns, Stop *stop) except -1 nogil:
    cdef Bytes end = base + size, name, space, line_end
    cdef Py_ssize_t name_size

    while True:
        name = base + position
        line_end = <Bytes> memchr(name, 10, end - name) if name != end else NULL
        if line_end == NULL:
            stop[0] = stop_at(position, 0, end - name <= line_limit)
            return 0
        if line_end == name or line_end - name > line_limit or (line_end - 1)[0] == 13:
            break
        space = <Bytes> memchr(name, 32, line_end - name)
        if space == NULL:
            break
        name_size = space - name
        if name_size == 0 or name_size > topic_limit or line_end - space - 1 > payload_limit:
            break
        if memchr(name, 33, name_size) != NULL or memchr(name, 13, name_size) != NULL:
            break
        columns.add(name, name_size, position, space + 1 - base, line_end - base)
        position = line_end + 1 - base
    stop[0] = stop_at(position, 0, False)
    return 0


def lines(const unsigned char[::1] block, Py_ssize_t position, Py_ssize_t topic_limit, Py_ssize_t line_limit,
          Py_ssize_t payload_limit):
    cdef Bytes base = begin_of(block)
    cdef Py_ssize_t size = block.shape[0]
    cdef Columns columns = Columns(size - position)
    cdef Stop stop

    if size - position > LARGE_BYTES:
        with nogil:
            scan_lines(base, size, position, topic_limit, line_limit, payload_limit, columns, &stop)
    else:
        scan_lines(base, size, position, topic_limit, line_limit, payload_limit, columns, &stop)
    return columns.close(stop)


cdef int scan_bodies(Bytes base, Py_ssize_t end, Py_ssize_t position, bint typed, int separator,
                     Py_ssize_t topic_limit, Py_ssize_t payload_limit, Py_ssize_t body_limit, Columns columns,
                     Stop *stop) except -1 nogil:
    cdef Bytes cursor
    cdef Py_ssize_t head = 9 if typed else 8, begin, topic_size, i
    cdef unsigned long long size

    while True:
        cursor = base + position
        if end == position:
            stop[0] = stop_at(position, 0, True)
            return 0
        if typed and cursor[0] != 1:
            break
        if end - position < head:
            stop[0] = stop_at(position, 0, True)
            return 0
        size = 0
        for i in range(head - 8, head):
            size = size << 8 | cursor[i]
        if size > <unsigned long long> body_limit:
            break
        begin = position + head
        if <Py_ssize_t> size > end - begin:
            stop[0] = stop_at(position, head + <Py_ssize_t> size, True)
            return 0
        topic_size = columns.topic_in(base + begin, size, separator, topic_limit)
        if <Py_ssize_t> size - (topic_size + 1 if topic_size else 0) > payload_limit:
            break
        columns.add_body(base, position, begin, topic_size, begin + size)
        position = begin + size
    stop[0] = stop_at(position, 0, False)
    return 0


def bodies(const unsigned char[::1] block, Py_ssize_t position, bint typed, int separator, Py_ssize_t topic_limit,
           Py_ssize_t payload_limit, Py_ssize_t body_limit):
    cdef Bytes base = begin_of(block)
    cdef Py_ssize_t size = block.shape[0]
    cdef Columns columns = Columns(size - position)
    cdef Stop stop

    if size - position > LARGE_BYTES:
        with nogil:
            scan_bodies(base, size, position, typed, separator, topic_limit, payload_limit, body_limit, columns, &stop)
    else:
        scan_bodies(base, size, position, typed, separator, topic_limit, payload_limit, body_limit, columns, &stop)
    return columns.close(stop)


def divided(const unsigned char[::1] block, starts, ends, int separator, Py_ssize_t topic_limit):
    cdef Bytes base = begin_of(block)
    cdef Columns columns = Columns(64 * len(starts))
    cdef Py_ssize_t begin, end

    for begin, end in zip(starts, ends, strict=True):
        columns.add_body(base, begin, begin, columns.topic_in(base + begin, end - begin, separator, topic_limit), end)
    columns.set_room(columns.count)
    return columns.topics(), columns.run_ends(), columns.starts


cdef Bytes begin_of_block(block) except NULL:
    """Of bytes or of a bytearray."""
    if type(block) is bytes:
        return <Bytes> PyBytes_AS_STRING(block)
    return <Bytes> PyByteArray_AS_STRING(block)


cdef bytes room_for(array bounds, array edges):
    """A new object with the size of all frames of these slices."""
    cdef const long long *bound = bounds.data.as_longlongs
    cdef const long long *edge = edges.data.as_longlongs
    cdef Py_ssize_t i, size = 0, frames = len(bounds) - 1
    for i in range(0, len(edges) - 1, 2):
        if not 0 <= edge[i] <= edge[i + 1] <= frames:
            raise IndexError(f"slice ({edge[i]}, {edge[i + 1]}) of {frames} frames")
        size += bound[edge[i + 1]] - bound[edge[i]]
    return PyBytes_FromStringAndSize(NULL, size)


def join_frames(block, array bounds not None, array edges not None):
    cdef const long long *bound = bounds.data.as_longlongs
    cdef const long long *edge = edges.data.as_longlongs
    cdef bytes joined = room_for(bounds, edges)
    cdef char *out = PyBytes_AS_STRING(joined)
    cdef Bytes base = begin_of_block(block)
    cdef Py_ssize_t i, size
    for i in range(0, len(edges) - 1, 2):
        size = bound[edge[i + 1]] - bound[edge[i]]
        memcpy(out, base + bound[edge[i]], size)
        out += size
    return joined


def mark_frames(block, array bounds not None, array starts not None, array edges not None, unsigned char mark):
    cdef const long long *bound = bounds.data.as_longlongs
    cdef const long long *edge = edges.data.as_longlongs
    cdef const long long *start = starts.data.as_longlongs
    cdef bytes marked = join_frames(block, bounds, edges)
    cdef char *out = PyBytes_AS_STRING(marked)
    cdef Py_ssize_t i, frame
    for i in range(0, len(edges) - 1, 2):
        for frame in range(edge[i], edge[i + 1]):
            out[start[frame] - 1 - bound[edge[i]]] = mark
        out += bound[edge[i + 1]] - bound[edge[i]]
    return marked
