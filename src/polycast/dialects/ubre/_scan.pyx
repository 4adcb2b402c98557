# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The scans of scan.py, in C."""

from cpython.array cimport array, clone, resize
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport uint64_t
from libc.string cimport memchr, memcmp, memcpy, memmove

from array import array as new_array

from polycast.model import Format

ctypedef const unsigned char *Bytes

cdef array QUADS = new_array("q")
cdef const char *ESCAPES = b"\"\\/bfnrt"
cdef const char *MEANINGS = b"\"\\/\b\f\n\r\t"

cdef enum:
    TEXT_OPCODE = 1
    QUOTE = 34
    BACKSLASH = 92
    OPENING_BYTES = 12  # {"publish":"
    MIDDLE_BYTES = 9  # ","body":
    HEADER_BYTES = 10  # of a frame, at most
    DEPTH = 64
    NONE = 0
    TEXT = 1
    JSON = 2

cdef tuple FORMATS = (Format.NONE, Format.TEXT, Format.JSON)

cdef uint64_t ONES = 0x0101010101010101
cdef uint64_t HIGHS = 0x8080808080808080


# -- reading JSON ----------------------------------------------------------------------------------------


cdef struct Cursor:
    Bytes at
    Bytes end
    uint64_t seen  # all bits of all strings: the highest shows non-ASCII
    bint loose  # white space was skipped
    bint escaped  # a string had an escape


cdef inline void skip(Cursor *c) noexcept:
    while c.at < c.end and (c.at[0] == 32 or c.at[0] == 10 or c.at[0] == 13 or c.at[0] == 9):
        c.loose = True
        c.at += 1


cdef inline bint read_word(Cursor *c, const char *word, Py_ssize_t size) noexcept:
    skip(c)
    if c.end - c.at < size or memcmp(c.at, word, size) != 0:
        return False
    c.at += size
    return True


cdef inline int look(Cursor *c) noexcept:
    """The next byte, after white space; -1: there is none."""
    skip(c)
    return c.at[0] if c.at < c.end else -1


cdef inline Bytes after_text(Bytes at, Bytes end, uint64_t *seen) noexcept:
    """Skips to the first quote, backslash or control character, eight bytes at a time."""
    cdef uint64_t eight, quotes, slashes
    while end - at >= 8:
        memcpy(&eight, at, 8)
        quotes = eight ^ ONES * QUOTE
        slashes = eight ^ ONES * BACKSLASH
        if ((quotes - ONES) & ~quotes | (slashes - ONES) & ~slashes | (eight - ONES * 32) & ~eight) & HIGHS:
            break
        seen[0] |= eight
        at += 8
    while at < end and at[0] != QUOTE and at[0] != BACKSLASH and at[0] >= 32:
        seen[0] |= at[0]
        at += 1
    return at


cdef long read_unit(Bytes at, Bytes end) noexcept:
    """The value of the four digits of \\uXXXX; -1: no hex digits."""
    cdef long unit = 0
    cdef int i, c
    if end - at < 6 or at[0] != BACKSLASH or at[1] != 117:
        return -1
    for i in range(2, 6):
        c = at[i]
        if 48 <= c <= 57:
            c -= 48
        elif 97 <= (c | 32) <= 102:
            c = (c | 32) - 87
        else:
            return -1
        unit = unit << 4 | c
    return unit


cdef int escape_size(Bytes at, Bytes end, long *point) noexcept:
    """The length of the escape, and its character; 0: invalid, or half of a surrogate pair."""
    cdef Bytes found
    cdef long low
    if end - at < 2:
        return 0
    found = <Bytes> memchr(ESCAPES, at[1], 8)
    if found != NULL:
        point[0] = MEANINGS[found - <Bytes> ESCAPES]
        return 2
    point[0] = read_unit(at, end)
    if point[0] < 0 or 0xDC00 <= point[0] <= 0xDFFF:
        return 0
    if point[0] < 0xD800 or point[0] > 0xDFFF:
        return 6
    low = read_unit(at + 6, end)
    if low < 0xDC00 or low > 0xDFFF:
        return 0
    point[0] = 0x10000 + ((point[0] - 0xD800) << 10) + (low - 0xDC00)
    return 12


cdef bint read_string(Cursor *c) noexcept:
    cdef long point
    cdef int size
    if look(c) != QUOTE:
        return False
    c.at += 1
    while True:
        c.at = after_text(c.at, c.end, &c.seen)
        if c.at == c.end:
            return False
        if c.at[0] == QUOTE:
            c.at += 1
            return True
        size = escape_size(c.at, c.end, &point) if c.at[0] == BACKSLASH else 0
        if size == 0:
            return False
        c.escaped = True
        c.at += size


cdef bint read_digits(Cursor *c) noexcept:
    cdef Bytes begin = c.at
    while c.at < c.end and 48 <= c.at[0] <= 57:
        c.at += 1
    return c.at > begin


cdef bint read_number(Cursor *c) noexcept:
    if c.at[0] == 45:
        c.at += 1
    if c.at < c.end and c.at[0] == 48:
        c.at += 1
    elif not read_digits(c):
        return False
    if c.at < c.end and c.at[0] == 46:
        c.at += 1
        if not read_digits(c):
            return False
    if c.at < c.end and c.at[0] | 32 == 101:
        c.at += 1
        if c.at < c.end and (c.at[0] == 43 or c.at[0] == 45):
            c.at += 1
        return read_digits(c)
    return True


cdef bint read_leaf(Cursor *c, int first) noexcept:
    """A scalar value."""
    if first == QUOTE:
        return read_string(c)
    if first == 116:
        return read_word(c, b"true", 4)
    if first == 102:
        return read_word(c, b"false", 5)
    if first == 110:
        return read_word(c, b"null", 4)
    return (first == 45 or 48 <= first <= 57) and read_number(c)


cdef bint read_value(Cursor *c) noexcept:
    cdef uint64_t objects = 0  # one bit for each open container, the innermost lowest
    cdef int depth = 0, first, close
    while True:
        first = look(c)
        if first == 123 or first == 91:
            if depth == DEPTH:
                return False
            c.at += 1
            depth += 1
            objects = objects << 1 | (first == 123)
            if look(c) != first + 2:
                if first == 123 and not (read_string(c) and read_word(c, b":", 1)):
                    return False
                continue
        elif not read_leaf(c, first):
            return False
        while depth:
            close = look(c)
            if close != (125 if objects & 1 else 93):
                break
            c.at += 1
            depth -= 1
            objects >>= 1
        if depth == 0:
            return True
        if not read_word(c, b",", 1) or objects & 1 and not (read_string(c) and read_word(c, b":", 1)):
            return False


cdef bint is_utf8(Bytes text, Py_ssize_t size) except -1:
    try:
        PyUnicode_DecodeUTF8(<const char *> text, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


# -- reading publications --------------------------------------------------------------------------------


cdef struct Publication:
    Bytes topic
    Py_ssize_t topic_size
    Bytes body
    Py_ssize_t body_size
    int format
    bint loose
    bint decoded  # the payload had escapes


cdef bint read_publication(Bytes at, Bytes end, Publication *found) except -1:
    cdef Cursor c = Cursor(at, end, 0, False, False)
    if not (read_word(&c, b"{", 1) and read_word(&c, b'"publish"', 9) and read_word(&c, b":", 1)):
        return False
    skip(&c)
    found.topic = c.at + 1
    if not read_string(&c) or c.escaped:
        return False
    found.topic_size = c.at - 1 - found.topic
    found.format = NONE
    found.body = c.at
    if read_word(&c, b",", 1):
        if not (read_word(&c, b'"body"', 6) and read_word(&c, b":", 1)):
            return False
        found.format = TEXT if look(&c) == QUOTE else JSON
        found.body = c.at
        if not read_value(&c):
            return False
    found.body_size = c.at - found.body
    if not read_word(&c, b"}", 1) or look(&c) != -1:
        return False
    found.loose = c.loose
    found.decoded = found.format == TEXT and c.escaped
    return c.seen & HIGHS == 0 or is_utf8(at, end - at)


# -- writing ---------------------------------------------------------------------------------------------


cdef class Pile:
    """A growing buffer."""

    cdef bytearray data
    cdef Py_ssize_t size, room

    def __cinit__(self):
        self.data = bytearray()

    cdef unsigned char *reserve(self, Py_ssize_t more) except NULL:
        if self.size + more > self.room:
            self.room = 2 * self.size + more
            PyByteArray_Resize(self.data, self.room)
        return <unsigned char *> PyByteArray_AS_STRING(self.data) + self.size


cdef Py_ssize_t compact(unsigned char *to, Bytes at, Bytes end) noexcept:
    """The size of the JSON without white space between tokens. It is known to be valid."""
    cdef unsigned char *begin = to
    cdef uint64_t seen = 0
    cdef Bytes first
    while at < end:
        first = at
        if at[0] == QUOTE:
            at = after_text(at + 1, end, &seen)
            while at[0] == BACKSLASH:
                at = after_text(at + 2, end, &seen)
            at += 1
        else:
            at += 1
            if first[0] == 32 or first[0] == 10 or first[0] == 13 or first[0] == 9:
                continue
        memcpy(to, first, at - first)
        to += at - first
    return to - begin


cdef Py_ssize_t decode(unsigned char *to, Bytes at, Bytes end) noexcept:
    """The size of the unescaped string, without quotes."""
    cdef unsigned char *begin = to
    cdef uint64_t seen = 0
    cdef Bytes first
    cdef long point = 0
    while at < end:
        first = at
        at = after_text(at, end, &seen)
        memcpy(to, first, at - first)
        to += at - first
        if at < end:
            at += escape_size(at, end, &point)
            to += write_utf8(to, point)
    return to - begin


cdef int write_utf8(unsigned char *to, long point) noexcept:
    cdef int more = (point > 0x7F) + (point > 0x7FF) + (point > 0xFFFF), i
    if more == 0:
        to[0] = <unsigned char> point
        return 1
    for i in range(more, 0, -1):
        to[i] = 0x80 | point & 0x3F
        point >>= 6
    to[0] = <unsigned char> (0xFF << (7 - more) & 0xFF | point)
    return more + 1


cdef int write_header(unsigned char *to, Py_ssize_t size) noexcept:
    cdef int wide = 0 if size < 126 else 2 if size < 1 << 16 else 8, i
    to[0] = 0x80 | TEXT_OPCODE
    to[1] = <unsigned char> (size if wide == 0 else 126 if wide == 2 else 127)
    for i in range(wide, 0, -1):
        to[1 + i] = size & 0xFF
        size >>= 8
    return 2 + wide


# -- columns ---------------------------------------------------------------------------------------------


cdef class Columns:
    """The publications. Positions are in the source or, after the first rewritten message, in a copy."""

    cdef object source
    cdef Bytes base
    cdef bint framed, copied
    cdef Py_ssize_t first, last, topic_limit, payload_limit, count, room
    cdef Pile frames, payloads
    cdef list topics, formats, run_ends
    cdef array starts, ends, bounds
    cdef Bytes topic
    cdef Py_ssize_t topic_size
    cdef int format

    cdef int add(self, Bytes at, Bytes end, Py_ssize_t bound, Py_ssize_t after) except -1:
        """Adds the message whose frame is between `bound` and `after`; 0: it is not plain."""
        cdef Publication found
        if not read_publication(at, end, &found) or found.topic_size > self.topic_limit:
            return False
        if self.count == 0:
            self.first = bound
        if found.loose or found.decoded:
            if not self.rewrite(at, end, bound, &found):
                return False
        elif not self.keep(bound, after, &found):
            return False
        self.last = after
        return True

    cdef int keep(self, Py_ssize_t bound, Py_ssize_t after, Publication *found) except -1:
        cdef Py_ssize_t start = found.body - self.base, size = found.body_size, shift = 0
        if found.format == TEXT:
            start += 1
            size -= 2
        if size > self.payload_limit:
            return False
        if self.copied:
            memcpy(self.frames.reserve(after - bound), self.base + bound, after - bound)
            shift = self.frames.size - bound
            self.frames.size += after - bound
        return self.place(found, bound + shift, start + shift, start + shift + size)

    cdef int rewrite(self, Bytes at, Bytes end, Py_ssize_t bound, Publication *found) except -1:
        cdef unsigned char *to
        cdef Py_ssize_t size, header = 0, start, stop
        self.copy(bound)
        to = self.frames.reserve(HEADER_BYTES + (end - at) + 1)
        size = compact(to + HEADER_BYTES, at, end)
        if self.framed:
            header = write_header(to, size)
        memmove(to + header, to + HEADER_BYTES, size)
        bound = self.frames.size
        stop = bound + header + size - 1
        start = stop
        if found.format != NONE:
            start = bound + header + OPENING_BYTES + found.topic_size + MIDDLE_BYTES
        if found.decoded:
            start = self.payloads.size
            stop = start + decode(
                self.payloads.reserve(found.body_size), found.body + 1, found.body + found.body_size - 1
            )
        elif found.format == TEXT:
            start += 1
            stop -= 1
        to[header + size] = 10
        if stop - start > self.payload_limit:
            return False
        self.frames.size += header + size + (not self.framed)
        if found.decoded:  # its position is known after the last frame
            self.payloads.size = stop
            start, stop = -1 - start, -1 - stop
        return self.place(found, bound, start, stop)

    cdef int copy(self, Py_ssize_t bound) except -1:
        """Copies all messages, found before and from here on."""
        cdef Py_ssize_t i, size = bound - self.first
        if self.copied:
            return 0
        self.copied = True
        self.frames = Pile()
        self.payloads = Pile()
        if self.count == 0:
            return 0
        memcpy(self.frames.reserve(size), self.base + self.first, size)
        self.frames.size = size
        for i in range(self.count):
            self.starts.data.as_longlongs[i] -= self.first
            self.ends.data.as_longlongs[i] -= self.first
            self.bounds.data.as_longlongs[i] -= self.first
        return 0

    cdef int place(self, Publication *found, Py_ssize_t bound, Py_ssize_t start, Py_ssize_t end) except -1:
        if self.count == self.room:
            self.grow()
        if (
            self.count == 0
            or found.format != self.format
            or found.topic_size != self.topic_size
            or memcmp(found.topic, self.topic, self.topic_size) != 0
        ):
            if self.count:
                self.run_ends.append(self.count)
            self.topics.append(PyBytes_FromStringAndSize(<const char *> found.topic, found.topic_size))
            self.formats.append(FORMATS[found.format])
            self.topic = found.topic
            self.topic_size = found.topic_size
            self.format = found.format
        self.starts.data.as_longlongs[self.count] = start
        self.ends.data.as_longlongs[self.count] = end
        self.bounds.data.as_longlongs[self.count] = bound
        self.count += 1
        return True

    cdef int grow(self) except -1:
        if self.room == 0:
            self.room = 64
            self.topics, self.formats, self.run_ends = [], [], []
            self.starts, self.ends = clone(QUADS, self.room, False), clone(QUADS, self.room, False)
            self.bounds = clone(QUADS, self.room + 1, False)
            return 0
        self.room *= 4
        resize(self.starts, self.room)
        resize(self.ends, self.room)
        resize(self.bounds, self.room + 1)
        return 0

    cdef tuple close(self, Py_ssize_t position):
        if self.count == 0:
            return self.source, [], [], [], (), (), (), position
        self.run_ends.append(self.count)
        self.bounds.data.as_longlongs[self.count] = self.frames.size if self.copied else self.last
        resize(self.starts, self.count)
        resize(self.ends, self.count)
        resize(self.bounds, self.count + 1)
        block = self.join() if self.copied else self.source
        return block, self.topics, self.formats, self.run_ends, self.starts, self.ends, self.bounds, position

    cdef bytes join(self):
        """All frames, followed by the unescaped payloads."""
        cdef Py_ssize_t size = self.frames.size, i
        cdef bytes block = PyBytes_FromStringAndSize(NULL, size + self.payloads.size)
        cdef char *to = PyBytes_AS_STRING(block)
        memcpy(to, PyByteArray_AS_STRING(self.frames.data), size)
        memcpy(to + size, PyByteArray_AS_STRING(self.payloads.data), self.payloads.size)
        if self.payloads.size:
            for i in range(self.count):
                if self.starts.data.as_longlongs[i] < 0:
                    self.starts.data.as_longlongs[i] = size - 1 - self.starts.data.as_longlongs[i]
                    self.ends.data.as_longlongs[i] = size - 1 - self.ends.data.as_longlongs[i]
        return block


cdef Bytes begin_of(block) except NULL:
    """A block is bytes or bytearray; a view would cost more than reading a message."""
    if isinstance(block, bytes):
        return <Bytes> PyBytes_AS_STRING(block)
    return <Bytes> PyByteArray_AS_STRING(<bytearray?> block)


cdef Columns new_columns(block, bint framed, Py_ssize_t topic_limit, Py_ssize_t payload_limit):
    cdef Columns columns = Columns.__new__(Columns)
    columns.source = block
    columns.base = begin_of(block)
    columns.framed = framed
    columns.topic_limit = topic_limit
    columns.payload_limit = payload_limit
    return columns


cdef array to_quads(numbers):
    return numbers if isinstance(numbers, array) else new_array("q", numbers)


def framed(block, starts, ends, bytes opcodes not None, bounds, Py_ssize_t position, Py_ssize_t topic_limit,
           Py_ssize_t payload_limit):
    cdef Columns columns = new_columns(block, True, topic_limit, payload_limit)
    cdef array begins = to_quads(starts), stops = to_quads(ends), edges = to_quads(bounds)
    cdef long long *begin = begins.data.as_longlongs
    cdef long long *stop = stops.data.as_longlongs
    cdef long long *edge = edges.data.as_longlongs
    cdef const char *kinds = PyBytes_AS_STRING(opcodes)
    cdef Bytes base = columns.base

    while position < len(opcodes) and kinds[position] == TEXT_OPCODE:
        if not columns.add(base + begin[position], base + stop[position], edge[position], edge[position + 1]):
            break
        position += 1
    return columns.close(position)


def lines(block, Py_ssize_t position, Py_ssize_t line_limit, Py_ssize_t topic_limit, Py_ssize_t payload_limit):
    cdef Columns columns = new_columns(block, False, topic_limit, payload_limit)
    cdef Bytes base = columns.base, end
    cdef Py_ssize_t there = len(block), size

    while True:
        size = min(there - position, line_limit + 1)
        end = <Bytes> memchr(base + position, 10, size) if size > 0 else NULL
        if end == NULL or not columns.add(base + position, end, position, end + 1 - base):
            return columns.close(position)
        position = end + 1 - base
