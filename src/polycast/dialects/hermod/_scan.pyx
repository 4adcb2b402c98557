# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The scan of scan.py and its frames at the speed of C; what they do and why is said there.

sha1 stays with hashlib: it uses the processor's own instructions, which plain C cannot beat.
"""

from cpython.array cimport array, clone, resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcmp, memcpy

from array import array as new_array
from hashlib import sha1

ctypedef const unsigned char *Bytes

cdef array QUADS = new_array("q")
cdef const char *DIGITS = b"0123456789abcdef"

cdef enum:
    SHA1_BYTES = 20
    SHA1_DIGITS = 40
    NUMBER_DIGITS = 20


cdef Bytes after(Bytes at, Bytes end, const char *text, Py_ssize_t size) noexcept:
    """Past white space and this text; NULL if something else is there."""
    while at < end and (at[0] == 32 or at[0] == 9 or at[0] == 10 or at[0] == 13):
        at += 1
    return at + size if end - at >= size and memcmp(at, text, size) == 0 else NULL


cdef Bytes after_key(Bytes at, Bytes end, const char *key, Py_ssize_t size) noexcept:
    at = after(at, end, key, size)
    return after(at, end, b":", 1) if at != NULL else NULL


cdef struct Header:
    Bytes topic
    Py_ssize_t topic_size
    Py_ssize_t payload_size
    Bytes checksum
    Py_ssize_t checksum_size
    Bytes end  # NULL: not in plain form, or not all there


cdef Header read_plain(Bytes at, Bytes end) noexcept:
    cdef Header header
    cdef Py_ssize_t digits = 0
    header.end = NULL
    at = after(at, end, b"{", 1)
    if at != NULL: at = after_key(at, end, b'"topic"', 7)
    if at != NULL: at = after(at, end, b'"', 1)
    if at == NULL: return header
    header.topic = at
    while at < end and 32 <= at[0] <= 126 and at[0] != 34 and at[0] != 92:
        at += 1
    header.topic_size = at - header.topic
    if at == end or at[0] != 34: return header
    at = after(at + 1, end, b",", 1)
    if at != NULL: at = after_key(at, end, b'"payload_size"', 14)
    if at != NULL: at = after(at, end, b"", 0)
    if at == NULL: return header
    header.payload_size = 0
    while at < end and 48 <= at[0] <= 57 and digits < 11:
        header.payload_size = header.payload_size * 10 + (at[0] - 48)
        digits += 1
        at += 1
    if digits == 0 or digits > 10 or (digits > 1 and (at - digits)[0] == 48): return header
    at = after(at, end, b",", 1)
    if at != NULL: at = after_key(at, end, b'"checksum"', 10)
    if at != NULL: at = after(at, end, b'"', 1)
    if at == NULL: return header
    header.checksum = at
    while at < end and (48 <= at[0] <= 57 or 97 <= at[0] <= 102) and at - header.checksum < SHA1_DIGITS:
        at += 1
    header.checksum_size = at - header.checksum
    if at == end or at[0] != 34 or (header.checksum_size and header.checksum_size != SHA1_DIGITS): return header
    header.end = after(at + 1, end, b"}", 1)
    return header


cdef bint fits(bytes digest, Bytes checksum) noexcept:
    cdef Bytes raw = <Bytes> PyBytes_AS_STRING(digest)
    cdef Py_ssize_t i
    for i in range(SHA1_BYTES):
        if checksum[2 * i] != DIGITS[raw[i] >> 4] or checksum[2 * i + 1] != DIGITS[raw[i] & 15]:
            return False
    return True


def messages(block, Py_ssize_t position, Py_ssize_t most, Py_ssize_t topic_limit, Py_ssize_t payload_limit,
             Py_ssize_t header_limit, bint unchecked):
    cdef const unsigned char[::1] bytes_of = block
    cdef Bytes base = &bytes_of[0] if bytes_of.shape[0] else NULL, end = base + bytes_of.shape[0], topic = NULL
    cdef Py_ssize_t room = (bytes_of.shape[0] - position) // 128 + 8, count = 0, topic_size = 0, start
    cdef array starts = clone(QUADS, room, False), ends = clone(QUADS, room, False)
    cdef list topics = [], run_ends = [], digests = []
    cdef Header header
    view = memoryview(block)

    while count < most:
        header = read_plain(base + position, end)
        if header.end == NULL or end - header.end < header.payload_size or header.payload_size > payload_limit:
            break
        start = header.end - base
        if header.topic_size > topic_limit or start - position > header_limit:
            break
        if header.checksum_size:
            if not fits(sha1(view[start:start + header.payload_size], usedforsecurity=False).digest(), header.checksum):
                break
        elif not unchecked:
            break
        if count == room:
            room *= 2
            resize(starts, room)
            resize(ends, room)
        if topic == NULL or header.topic_size != topic_size or memcmp(header.topic, topic, topic_size) != 0:
            if count:
                run_ends.append(count)
            topic, topic_size = header.topic, header.topic_size
            topics.append(PyBytes_FromStringAndSize(<const char *> topic, topic_size))
        position = start + header.payload_size
        starts.data.as_longlongs[count] = start
        ends.data.as_longlongs[count] = position
        digests.append(PyBytes_FromStringAndSize(<const char *> header.checksum, header.checksum_size))
        count += 1
    if count:
        run_ends.append(count)
    resize(starts, count)
    resize(ends, count)
    return topics, run_ends, starts, ends, digests, position


cdef char *put(char *to, const char *text, Py_ssize_t size) noexcept:
    memcpy(to, text, size)
    return to + size


cdef char *put_number(char *to, unsigned long long number) noexcept:
    cdef char digits[NUMBER_DIGITS]
    cdef Py_ssize_t at = NUMBER_DIGITS
    while True:
        at -= 1
        digits[at] = 48 + number % 10
        number //= 10
        if not number:
            return put(to, digits + at, NUMBER_DIGITS - at)


def frames(const unsigned char[::1] block, const long long[::1] starts, const long long[::1] ends, list digests,
           bytes head, Py_ssize_t first, Py_ssize_t last, unsigned long long sequence):
    cdef Py_ssize_t i, size, room = (last - first) * (len(head) + 2 * NUMBER_DIGITS + SHA1_DIGITS + 35)
    cdef const char *head_at = PyBytes_AS_STRING(head)
    cdef bytearray out
    cdef bytes digest
    cdef char *begin
    cdef char *to

    for i in range(first, last):
        room += ends[i] - starts[i]
    out = bytearray(room)
    begin = to = out
    for i in range(first, last):
        size = ends[i] - starts[i]
        to = put(to, head_at, len(head))
        to = put_number(to, sequence + i - first)
        to = put(to, b', "payload_size": ', 18)
        to = put_number(to, size)
        to = put(to, b', "checksum": "', 15)
        digest = digests[i]
        if len(digest) != SHA1_DIGITS:
            raise ValueError("a sha1 has 40 digits")
        to = put(to, PyBytes_AS_STRING(digest), SHA1_DIGITS)
        to = put(to, b'"}', 2)
        if size:
            to = put(to, <const char *> &block[starts[i]], size)
    del out[to - begin:]
    return out
