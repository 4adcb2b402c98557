# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The scan and the frames of scan.py, in C.

hashlib takes 800 ns for 100 bytes, most of it call overhead. With the sha1 instructions of the processor, a short
payload takes 100 ns here. Without them, hashlib does all payloads: plain C would take 300 ns, and would be a second
sha1 that no test machine runs.
"""

from cpython.array cimport array, clone, resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.string cimport memcmp, memcpy

from array import array as new_array
from hashlib import sha1

ctypedef const unsigned char *Bytes

cdef array QUADS = new_array("q")
cdef const char *DIGITS = b"0123456789abcdef"

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define SHA1_BLOCK 64

    #if defined(__x86_64__) && defined(__GNUC__)
    #include <cpuid.h>
    #include <immintrin.h>

    static int sha1_is_built_in(void) {
        unsigned a, b, c, d;
        int shuffles = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_1);
        return shuffles && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA);
    }

    /* 20 of the 80 rounds, 4 by 4. The words of 4 rounds come from those of the 16 rounds before; `k` has to be
       a constant, and so this is no function. */
    #define SHA1_ROUNDS(first, k) \
        for (t = first; t < first + 5; t++) { \
            __m128i *word = &words[t % 4]; \
            if (t >= 4) \
                *word = _mm_sha1msg2_epu32( \
                    _mm_xor_si128(_mm_sha1msg1_epu32(*word, words[(t + 1) % 4]), words[(t + 2) % 4]), \
                    words[(t + 3) % 4]); \
            e = t ? _mm_sha1nexte_epu32(e, *word) : _mm_add_epi32(e, *word); \
            next = _mm_sha1rnds4_epu32(abcd, e, k); \
            e = abcd; \
            abcd = next; \
        }

    __attribute__((target("sha,sse4.1")))
    static void sha1_blocks(uint32_t *state, const unsigned char *at, Py_ssize_t count) {
        const __m128i big_endian = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
        __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *) state), 0x1b);
        __m128i e = _mm_set_epi32((int) state[4], 0, 0, 0);
        for (; count; count--, at += SHA1_BLOCK) {
            const __m128i abcd_before = abcd, e_before = e;
            __m128i next, words[4];
            unsigned t;
            for (t = 0; t < 4; t++)
                words[t] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *) at + t), big_endian);
            SHA1_ROUNDS(0, 0)
            SHA1_ROUNDS(5, 1)
            SHA1_ROUNDS(10, 2)
            SHA1_ROUNDS(15, 3)
            e = _mm_sha1nexte_epu32(e, e_before);
            abcd = _mm_add_epi32(abcd, abcd_before);
        }
        _mm_storeu_si128((__m128i *) state, _mm_shuffle_epi32(abcd, 0x1b));
        state[4] = (uint32_t) _mm_extract_epi32(e, 3);
    }
    #else
    static int sha1_is_built_in(void) { return 0; }
    static void sha1_blocks(uint32_t *state, const unsigned char *at, Py_ssize_t count) { }
    #endif

    /* The data, then a bit, zeros, and the number of its bits as the last 8 bytes of a block. */
    static void sha1_of_short(const unsigned char *data, Py_ssize_t size, unsigned char *to) {
        uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
        const Py_ssize_t rest = size % SHA1_BLOCK;
        const Py_ssize_t end = rest < SHA1_BLOCK - 8 ? SHA1_BLOCK : 2 * SHA1_BLOCK;
        unsigned char last[2 * SHA1_BLOCK] = {0};
        int i;
        memcpy(last, data + size - rest, rest);
        last[rest] = 0x80;
        for (i = 0; i < 8; i++) last[end - 1 - i] = (unsigned char) ((uint64_t) size * 8 >> 8 * i);
        sha1_blocks(state, data, size / SHA1_BLOCK);
        sha1_blocks(state, last, end / SHA1_BLOCK);
        for (i = 0; i < 20; i++) to[i] = (unsigned char) (state[i / 4] >> (24 - 8 * (i % 4)));
    }
    """
    bint sha1_is_built_in() noexcept
    void sha1_of_short(const unsigned char *data, Py_ssize_t size, unsigned char *to) noexcept


cdef bint BUILT_IN = sha1_is_built_in()

cdef enum:
    SHORT_BYTES = 4096  # hashlib is as fast for longer payloads, and releases the GIL
    SHA1_BYTES = 20
    SHA1_DIGITS = 40
    NUMBER_DIGITS = 20


cdef Bytes after(Bytes at, Bytes end, const char *text, Py_ssize_t size) noexcept:
    """The position after white space and this text; NULL: no match."""
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
    Bytes end  # NULL: not plain, or unfinished


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


cdef int write_sha1(view, Bytes base, Py_ssize_t start, Py_ssize_t size, unsigned char *to) except -1:
    """`view` shows the same bytes as those at `base`."""
    if BUILT_IN and size <= SHORT_BYTES:
        sha1_of_short(base + start, size, to)
    else:
        memcpy(to, PyBytes_AS_STRING(sha1(view[start:start + size], usedforsecurity=False).digest()), SHA1_BYTES)
    return 0


cdef bint fits(const unsigned char *raw, Bytes checksum) noexcept:
    cdef Py_ssize_t i
    for i in range(SHA1_BYTES):
        if checksum[2 * i] != DIGITS[raw[i] >> 4] or checksum[2 * i + 1] != DIGITS[raw[i] & 15]:
            return False
    return True


def digests(block, const long long[::1] starts, const long long[::1] ends):
    cdef const unsigned char[::1] bytes_of = block
    cdef Bytes base = &bytes_of[0] if bytes_of.shape[0] else <Bytes> DIGITS
    cdef unsigned char raw[SHA1_BYTES]
    cdef Py_ssize_t i, k
    cdef list found = []
    cdef bytes digest
    cdef char *to
    view = memoryview(block)

    for i in range(starts.shape[0]):
        write_sha1(view, base, starts[i], ends[i] - starts[i], raw)
        digest = PyBytes_FromStringAndSize(NULL, SHA1_DIGITS)
        to = PyBytes_AS_STRING(digest)
        for k in range(SHA1_BYTES):
            to[2 * k] = DIGITS[raw[k] >> 4]
            to[2 * k + 1] = DIGITS[raw[k] & 15]
        found.append(digest)
    return found


def messages(block, Py_ssize_t position, Py_ssize_t most, Py_ssize_t topic_limit, Py_ssize_t payload_limit,
             Py_ssize_t header_limit, bint unchecked):
    cdef const unsigned char[::1] bytes_of = block
    cdef Bytes base = &bytes_of[0] if bytes_of.shape[0] else NULL, end = base + bytes_of.shape[0], topic = NULL
    cdef Py_ssize_t room = (bytes_of.shape[0] - position) // 128 + 8, count = 0, topic_size = 0, start
    cdef array starts = clone(QUADS, room, False), ends = clone(QUADS, room, False)
    cdef list topics = [], run_ends = [], digests = []
    cdef unsigned char raw[SHA1_BYTES]
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
            write_sha1(view, base, start, header.payload_size, raw)
            if not fits(raw, header.checksum):
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
           list runs, long long offset=-1, const long long[::1] times=QUADS):
    cdef Py_ssize_t i, size, first, last, head_size, room = 0
    cdef Py_ssize_t position_room = 2 * NUMBER_DIGITS + 20 if offset >= 0 else 0
    cdef unsigned long long sequence
    cdef const char *head_at
    cdef bytearray out
    cdef bytes digest, head
    cdef char *begin
    cdef char *to

    if offset >= 0 and times.shape[0] != starts.shape[0]:
        raise ValueError("each message has a time")
    for head, first, last, _ in runs:
        room += (last - first) * (len(head) + 2 * NUMBER_DIGITS + SHA1_DIGITS + 35 + position_room)
        for i in range(first, last):
            room += ends[i] - starts[i]
    out = bytearray(room)
    begin = to = out
    for head, first, last, sequence in runs:
        head_at, head_size = PyBytes_AS_STRING(head), len(head)
        for i in range(first, last):
            size = ends[i] - starts[i]
            to = put(to, head_at, head_size)
            to = put_number(to, sequence + i - first)
            if offset >= 0:
                to = put(to, b', "offset": ', 12)
                to = put_number(to, offset + i)
                to = put(to, b', "time": ', 10)
                to = put_number(to, times[i])
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
