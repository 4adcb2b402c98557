# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The scan and the frames of scan.py, in C.

hashlib takes 240 ns for 100 bytes, most of it call overhead. With the sha1 instructions of the processor, such a
payload takes 40 ns here: each instruction waits for the one before, so two payloads at a time take hardly longer than
one. Without these instructions, hashlib does all payloads: plain C would be slower, and would be a second sha1 that no
test machine runs.
"""

from cpython.array cimport array, clone, resize
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_Resize
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

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

    /* 4 of the 80 rounds of one payload. Their words come from those of the 16 rounds before; `k` has to be a
       constant, and so this is no function. */
    #define SHA1_FOUR(lane, t, k) \
        { \
            __m128i *words = lane.words, *word = &words[t % 4]; \
            if (t >= 4) \
                *word = _mm_sha1msg2_epu32( \
                    _mm_xor_si128(_mm_sha1msg1_epu32(*word, words[(t + 1) % 4]), words[(t + 2) % 4]), \
                    words[(t + 3) % 4]); \
            lane.e = t ? _mm_sha1nexte_epu32(lane.e, *word) : _mm_add_epi32(lane.e, *word); \
            lane.next = _mm_sha1rnds4_epu32(lane.abcd, lane.e, k); \
            lane.e = lane.abcd; \
            lane.abcd = lane.next; \
        }
    #define SHA1_ROUNDS(first, k) for (t = first; t < first + 5; t++) SHA1_FOUR(one, t, k)
    #define SHA1_ROUNDS_OF_TWO(first, k) \
        for (t = first; t < first + 5; t++) { SHA1_FOUR(one, t, k) SHA1_FOUR(two, t, k) }

    typedef struct { __m128i abcd, e, next, abcd_before, e_before, words[4]; } Lane;

    #define TARGET __attribute__((target("sha,sse4.1"), always_inline)) static inline

    TARGET void sha1_load(Lane *lane, const uint32_t *state) {
        lane->abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *) state), 0x1b);
        lane->e = _mm_set_epi32((int) state[4], 0, 0, 0);
    }

    TARGET void sha1_begin(Lane *lane, const unsigned char *at) {
        const __m128i big_endian = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
        int t;
        lane->abcd_before = lane->abcd;
        lane->e_before = lane->e;
        for (t = 0; t < 4; t++)
            lane->words[t] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *) at + t), big_endian);
    }

    TARGET void sha1_end(Lane *lane) {
        lane->e = _mm_sha1nexte_epu32(lane->e, lane->e_before);
        lane->abcd = _mm_add_epi32(lane->abcd, lane->abcd_before);
    }

    TARGET void sha1_store(const Lane *lane, uint32_t *state) {
        _mm_storeu_si128((__m128i *) state, _mm_shuffle_epi32(lane->abcd, 0x1b));
        state[4] = (uint32_t) _mm_extract_epi32(lane->e, 3);
    }

    __attribute__((target("sha,sse4.1"), optimize("unroll-loops")))
    static void sha1_blocks(uint32_t *state, const unsigned char *at, Py_ssize_t count) {
        Lane one;
        unsigned t;
        sha1_load(&one, state);
        for (; count > 0; count--, at += SHA1_BLOCK) {
            sha1_begin(&one, at);
            SHA1_ROUNDS(0, 0)
            SHA1_ROUNDS(5, 1)
            SHA1_ROUNDS(10, 2)
            SHA1_ROUNDS(15, 3)
            sha1_end(&one);
        }
        sha1_store(&one, state);
    }

    __attribute__((target("sha,sse4.1"), optimize("unroll-loops")))
    static void sha1_blocks_of_two(uint32_t *state, const unsigned char *at, uint32_t *other,
                                   const unsigned char *other_at, Py_ssize_t count) {
        Lane one, two;
        unsigned t;
        sha1_load(&one, state);
        sha1_load(&two, other);
        for (; count > 0; count--, at += SHA1_BLOCK, other_at += SHA1_BLOCK) {
            sha1_begin(&one, at);
            sha1_begin(&two, other_at);
            SHA1_ROUNDS_OF_TWO(0, 0)
            SHA1_ROUNDS_OF_TWO(5, 1)
            SHA1_ROUNDS_OF_TWO(10, 2)
            SHA1_ROUNDS_OF_TWO(15, 3)
            sha1_end(&one);
            sha1_end(&two);
        }
        sha1_store(&one, state);
        sha1_store(&two, other);
    }
    #else
    static int sha1_is_built_in(void) { return 0; }
    static void sha1_blocks(uint32_t *state, const unsigned char *at, Py_ssize_t count) { }
    static void sha1_blocks_of_two(uint32_t *state, const unsigned char *at, uint32_t *other,
                                   const unsigned char *other_at, Py_ssize_t count) { }
    #endif

    typedef struct {
        uint32_t state[5];
        unsigned char last[2 * SHA1_BLOCK];
        Py_ssize_t blocks, last_blocks;
    } Sha1;

    /* The data, then a bit, zeros, and the number of its bits as the last 8 bytes of a block. */
    static void sha1_start(Sha1 *sha1, const unsigned char *data, Py_ssize_t size) {
        static const uint32_t start[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
        const Py_ssize_t rest = size % SHA1_BLOCK;
        const Py_ssize_t end = rest < SHA1_BLOCK - 8 ? SHA1_BLOCK : 2 * SHA1_BLOCK;
        const uint64_t bits = __builtin_bswap64((uint64_t) size * 8);
        memcpy(sha1->state, start, sizeof start);
        memcpy(sha1->last, data + size - rest, rest);
        memset(sha1->last + rest, 0, end - rest);
        sha1->last[rest] = 0x80;
        memcpy(sha1->last + end - 8, &bits, 8);
        sha1->blocks = size / SHA1_BLOCK;
        sha1->last_blocks = end / SHA1_BLOCK;
    }

    static void sha1_finish(const Sha1 *sha1, unsigned char *to) {
        int i;
        for (i = 0; i < 5; i++) {
            const uint32_t word = __builtin_bswap32(sha1->state[i]);
            memcpy(to + 4 * i, &word, 4);
        }
    }

    static void sha1_of_one(const unsigned char *data, Py_ssize_t size, unsigned char *to) {
        Sha1 one;
        sha1_start(&one, data, size);
        sha1_blocks(one.state, data, one.blocks);
        sha1_blocks(one.state, one.last, one.last_blocks);
        sha1_finish(&one, to);
    }

    #define BOTH(a, b) ((a) < (b) ? (a) : (b))

    static void sha1_of_two(const unsigned char *data, Py_ssize_t size, unsigned char *to,
                            const unsigned char *other, Py_ssize_t other_size, unsigned char *other_to) {
        Sha1 one, two;
        Py_ssize_t both;
        sha1_start(&one, data, size);
        sha1_start(&two, other, other_size);
        both = BOTH(one.blocks, two.blocks);
        sha1_blocks_of_two(one.state, data, two.state, other, both);
        sha1_blocks(one.state, data + both * SHA1_BLOCK, one.blocks - both);
        sha1_blocks(two.state, other + both * SHA1_BLOCK, two.blocks - both);
        both = BOTH(one.last_blocks, two.last_blocks);
        sha1_blocks_of_two(one.state, one.last, two.state, two.last, both);
        sha1_blocks(one.state, one.last + both * SHA1_BLOCK, one.last_blocks - both);
        sha1_blocks(two.state, two.last + both * SHA1_BLOCK, two.last_blocks - both);
        sha1_finish(&one, to);
        sha1_finish(&two, other_to);
    }
    """
    bint sha1_is_built_in() noexcept nogil
    void sha1_of_one(const unsigned char *data, Py_ssize_t size, unsigned char *to) noexcept nogil
    void sha1_of_two(const unsigned char *data, Py_ssize_t size, unsigned char *to,
                     const unsigned char *other, Py_ssize_t other_size, unsigned char *other_to) noexcept nogil


cdef bint BUILT_IN = sha1_is_built_in()

cdef enum:
    LARGE_BYTES = 65536  # the GIL is released for larger blocks: to get it back takes longer than a small one
    SHA1_BYTES = 20
    SHA1_DIGITS = 40
    NUMBER_DIGITS = 20


cdef Bytes after(Bytes at, Bytes end, const char *text, Py_ssize_t size) noexcept nogil:
    """The position after white space and this text; NULL: no match."""
    while at < end and (at[0] == 32 or at[0] == 9 or at[0] == 10 or at[0] == 13):
        at += 1
    return at + size if end - at >= size and memcmp(at, text, size) == 0 else NULL


cdef Bytes after_key(Bytes at, Bytes end, const char *key, Py_ssize_t size) noexcept nogil:
    at = after(at, end, key, size)
    return after(at, end, b":", 1) if at != NULL else NULL


cdef struct Header:
    Bytes topic
    Py_ssize_t topic_size
    Py_ssize_t payload_size
    Bytes checksum
    Py_ssize_t checksum_size
    Bytes end  # NULL: not plain, or unfinished


cdef inline Bytes after_topic_key(Bytes at, Bytes end) noexcept nogil:
    """Most clients write the same white space: it is compared first, here and below."""
    if end - at >= 11 and memcmp(at, b'{"topic": "', 11) == 0:
        return at + 11
    at = after(at, end, b"{", 1)
    if at != NULL: at = after_key(at, end, b'"topic"', 7)
    return after(at, end, b'"', 1) if at != NULL else NULL


cdef inline Bytes after_size_key(Bytes at, Bytes end) noexcept nogil:
    if end - at >= 18 and memcmp(at, b', "payload_size": ', 18) == 0:
        return at + 18
    at = after(at, end, b",", 1)
    if at != NULL: at = after_key(at, end, b'"payload_size"', 14)
    return after(at, end, b"", 0) if at != NULL else NULL


cdef inline Bytes after_checksum_key(Bytes at, Bytes end) noexcept nogil:
    if end - at >= 15 and memcmp(at, b', "checksum": "', 15) == 0:
        return at + 15
    at = after(at, end, b",", 1)
    if at != NULL: at = after_key(at, end, b'"checksum"', 10)
    return after(at, end, b'"', 1) if at != NULL else NULL


cdef Header read_plain(Bytes at, Bytes end) noexcept nogil:
    cdef Header header
    cdef Py_ssize_t digits = 0
    memset(&header, 0, sizeof(header))
    at = after_topic_key(at, end)
    if at == NULL: return header
    header.topic = at
    while at < end and 32 <= at[0] <= 126 and at[0] != 34 and at[0] != 92:
        at += 1
    header.topic_size = at - header.topic
    if at == end or at[0] != 34: return header
    at = after_size_key(at + 1, end)
    if at == NULL: return header
    header.payload_size = 0
    while at < end and 48 <= at[0] <= 57 and digits < 11:
        header.payload_size = header.payload_size * 10 + (at[0] - 48)
        digits += 1
        at += 1
    if digits == 0 or digits > 10 or (digits > 1 and (at - digits)[0] == 48): return header
    at = after_checksum_key(at, end)
    if at == NULL: return header
    header.checksum = at
    while at < end and (48 <= at[0] <= 57 or 97 <= at[0] <= 102) and at - header.checksum < SHA1_DIGITS:
        at += 1
    header.checksum_size = at - header.checksum
    if at == end or at[0] != 34 or (header.checksum_size and header.checksum_size != SHA1_DIGITS): return header
    header.end = after(at + 1, end, b"}", 1)
    return header


cdef int write_sha1(Bytes data, Py_ssize_t size, unsigned char *to) except -1 nogil:
    if BUILT_IN:
        sha1_of_one(data, size, to)
        return 0
    with gil:
        hashed = sha1(<const unsigned char[:size]> data if size else b"", usedforsecurity=False)
        memcpy(to, PyBytes_AS_STRING(hashed.digest()), SHA1_BYTES)
    return 0


cdef int write_two(Bytes data, Py_ssize_t size, Bytes other, Py_ssize_t other_size, unsigned char *to) except -1 nogil:
    if BUILT_IN:
        sha1_of_two(data, size, to, other, other_size, to + SHA1_BYTES)
        return 0
    write_sha1(data, size, to)
    return write_sha1(other, other_size, to + SHA1_BYTES)


cdef char PAIRS[512]  # the two digits of each byte
for number in range(256):
    PAIRS[2 * number] = DIGITS[number >> 4]
    PAIRS[2 * number + 1] = DIGITS[number & 15]


cdef inline void put_digits(char *to, const unsigned char *raw) noexcept nogil:
    cdef Py_ssize_t i
    for i in range(SHA1_BYTES):
        memcpy(to + 2 * i, PAIRS + 2 * raw[i], 2)


cdef bint fits(const unsigned char *raw, Bytes checksum) noexcept nogil:
    cdef char digits[SHA1_DIGITS]
    put_digits(digits, raw)
    return memcmp(digits, checksum, SHA1_DIGITS) == 0


cdef int check_payloads(Py_ssize_t size, const long long[::1] starts, const long long[::1] ends,
                        Py_ssize_t first, Py_ssize_t stop) except -1:
    """Messages from `first` to `stop`, which is at most the number of starts."""
    cdef Py_ssize_t i
    if starts.shape[0] != ends.shape[0]:
        raise ValueError(f"{starts.shape[0]:,} starts and {ends.shape[0]:,} ends")
    for i in range(first, stop):
        if not 0 <= starts[i] <= ends[i] <= size:
            raise ValueError(f"a payload from {starts[i]:,} to {ends[i]:,} in a block of {size:,} bytes")
    return 0


cdef int write_digests(Bytes base, const long long[::1] starts, const long long[::1] ends, char *to) except -1 nogil:
    cdef unsigned char raw[2 * SHA1_BYTES]
    cdef Py_ssize_t i, count = starts.shape[0]
    for i in range(0, count - 1, 2):
        write_two(base + starts[i], ends[i] - starts[i], base + starts[i + 1], ends[i + 1] - starts[i + 1], raw)
        put_digits(to + i * SHA1_DIGITS, raw)
        put_digits(to + (i + 1) * SHA1_DIGITS, raw + SHA1_BYTES)
    if count % 2:
        write_sha1(base + starts[count - 1], ends[count - 1] - starts[count - 1], raw)
        put_digits(to + (count - 1) * SHA1_DIGITS, raw)
    return 0


def digests(const unsigned char[::1] block, const long long[::1] starts, const long long[::1] ends):
    cdef Bytes base = &block[0] if block.shape[0] else <Bytes> DIGITS
    cdef bytes found = PyBytes_FromStringAndSize(NULL, starts.shape[0] * SHA1_DIGITS)
    cdef char *to = PyBytes_AS_STRING(found)

    check_payloads(block.shape[0], starts, ends, 0, starts.shape[0])
    if block.shape[0] > LARGE_BYTES:
        with nogil:
            write_digests(base, starts, ends, to)
    else:
        write_digests(base, starts, ends, to)
    return found


cdef struct Run:
    Bytes topic
    Py_ssize_t size
    Py_ssize_t end


cdef class Scan:
    """The messages found so far."""

    cdef Bytes base
    cdef Bytes end
    cdef Py_ssize_t room, count, topic_limit, payload_limit, header_limit
    cdef Py_ssize_t missing  # the size of a message that is not complete
    cdef bint unchecked
    cdef array starts, ends
    cdef bytearray digests
    cdef char *digit
    cdef Run *run
    cdef Py_ssize_t runs, run_room

    def __dealloc__(self):
        free(self.run)

    cdef Header read(self, Py_ssize_t position) noexcept nogil:
        """The next header, if its message is complete and within the limits."""
        cdef Header header = read_plain(self.base + position, self.end)
        cdef Py_ssize_t head_size
        if header.end == NULL:
            return header
        head_size = header.end - self.base - position
        if (
            header.payload_size > self.payload_limit or header.topic_size > self.topic_limit
            or head_size > self.header_limit or not (header.checksum_size or self.unchecked)
        ):
            header.end = NULL
        elif self.end - header.end < header.payload_size:
            header.end = NULL
            self.missing = head_size + header.payload_size
        return header

    cdef int hash(self, Header *headers, Py_ssize_t count, unsigned char *raw) except -1 nogil:
        cdef Py_ssize_t i
        if count == 2 and headers[0].checksum_size and headers[1].checksum_size:
            return write_two(
                headers[0].end, headers[0].payload_size, headers[1].end, headers[1].payload_size, raw
            )
        for i in range(count):
            if headers[i].checksum_size:
                write_sha1(headers[i].end, headers[i].payload_size, raw + i * SHA1_BYTES)
        return 0

    cdef Py_ssize_t read_all(self, Py_ssize_t position, Py_ssize_t most) except -1 nogil:
        """Up to `most` messages; the position after the last one. Two messages at a time: a wrong checksum costs at
        most one hash more than its own."""
        cdef unsigned char raw[2 * SHA1_BYTES]
        cdef Header headers[2]
        cdef Py_ssize_t read, added, after
        while True:
            read, after = 0, position
            while read < 2 and self.count + read < most:
                headers[read] = self.read(after)
                if headers[read].end == NULL:
                    break
                after = headers[read].end - self.base + headers[read].payload_size
                read += 1
            self.hash(headers, read, raw)
            added = 0
            while added < read and (
                not headers[added].checksum_size or fits(raw + added * SHA1_BYTES, headers[added].checksum)
            ):
                position = self.add(&headers[added])
                added += 1
            if added < read:
                self.missing = 0  # a message before it is read first
            if added < 2:
                return position

    cdef Py_ssize_t add(self, Header *header) except -1 nogil:
        """The position after the message."""
        cdef Py_ssize_t start = header.end - self.base
        cdef char *digest
        if self.count == self.room:
            with gil:
                self.set_room(2 * self.room)
        self.extend_run(header)
        self.starts.data.as_longlongs[self.count] = start
        self.ends.data.as_longlongs[self.count] = start + header.payload_size
        digest = self.digit + self.count * SHA1_DIGITS
        if header.checksum_size:
            memcpy(digest, header.checksum, SHA1_DIGITS)
        else:
            memset(digest, 0, SHA1_DIGITS)
        self.count += 1
        return start + header.payload_size

    cdef int extend_run(self, Header *header) except -1 nogil:
        """A run is messages of one topic."""
        cdef Run *run = &self.run[self.runs - 1] if self.runs else NULL
        if run == NULL or header.topic_size != run.size or memcmp(header.topic, run.topic, run.size):
            if self.runs == self.run_room:
                self.run_room = 2 * self.run_room + 16
                run = <Run *> realloc(self.run, self.run_room * sizeof(Run))
                if run == NULL:
                    with gil:
                        raise MemoryError()
                self.run = run
            run = &self.run[self.runs]
            run.topic, run.size = header.topic, header.topic_size
            self.runs += 1
        run.end = self.count + 1
        return 0

    cdef int set_room(self, Py_ssize_t room) except -1:
        self.room = room
        resize(self.starts, room)
        resize(self.ends, room)
        PyByteArray_Resize(self.digests, room * SHA1_DIGITS)
        self.digit = PyByteArray_AS_STRING(self.digests)
        return 0

    cdef tuple result(self, Py_ssize_t position):
        cdef Py_ssize_t i
        cdef list topics = [
            PyBytes_FromStringAndSize(<const char *> self.run[i].topic, self.run[i].size) for i in range(self.runs)
        ]
        cdef list run_ends = [self.run[i].end for i in range(self.runs)]
        self.set_room(self.count)
        return topics, run_ends, self.starts, self.ends, self.digests, position, self.missing


def messages(const unsigned char[::1] block, Py_ssize_t position, Py_ssize_t most, Py_ssize_t topic_limit,
             Py_ssize_t payload_limit, Py_ssize_t header_limit, bint unchecked):
    cdef Scan scan = Scan.__new__(Scan)

    scan.base = &block[0] if block.shape[0] else NULL
    scan.end = scan.base + block.shape[0]
    scan.topic_limit, scan.payload_limit, scan.header_limit = topic_limit, payload_limit, header_limit
    scan.unchecked = unchecked
    scan.starts, scan.ends, scan.digests = clone(QUADS, 0, False), clone(QUADS, 0, False), bytearray()
    scan.set_room((block.shape[0] - position) // 128 + 8)
    if block.shape[0] - position > LARGE_BYTES:
        with nogil:
            position = scan.read_all(position, most)
    else:
        position = scan.read_all(position, most)
    return scan.result(position)


cdef char *put(char *to, const char *text, Py_ssize_t size) noexcept nogil:
    memcpy(to, text, size)
    return to + size


cdef char *put_number(char *to, unsigned long long number) noexcept nogil:
    cdef char digits[NUMBER_DIGITS]
    cdef Py_ssize_t at = NUMBER_DIGITS
    while True:
        at -= 1
        digits[at] = 48 + number % 10
        number //= 10
        if not number:
            return put(to, digits + at, NUMBER_DIGITS - at)


cdef struct Piece:  # messages of one run in a slice
    const char *topic  # with quotes, if `quoted`
    Py_ssize_t size
    bint quoted
    Py_ssize_t start, stop
    unsigned long long sequence


cdef bint is_plain(const char *text, Py_ssize_t size) noexcept:
    cdef Py_ssize_t i
    for i in range(size):
        if not 32 <= text[i] <= 126 or text[i] == 34 or text[i] == 92:
            return False
    return True


cdef class Pieces:
    cdef Piece *piece
    cdef Py_ssize_t count, room
    cdef list quoted
    """Keeps the texts alive."""

    def __cinit__(self):
        self.quoted = []

    def __dealloc__(self):
        PyMem_Free(self.piece)

    cdef int add(self, bytes topic, Py_ssize_t start, Py_ssize_t stop, unsigned long long sequence, quote) except -1:
        cdef Piece *piece
        if self.count == self.room:
            self.room = 2 * self.room + 16
            piece = <Piece *> PyMem_Realloc(self.piece, self.room * sizeof(Piece))
            if piece == NULL:
                raise MemoryError()
            self.piece = piece
        piece = &self.piece[self.count]
        piece.quoted = not is_plain(PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic))
        if piece.quoted:
            topic = quote(topic)
            self.quoted.append(topic)
        piece.topic, piece.size = PyBytes_AS_STRING(topic), PyBytes_GET_SIZE(topic)
        piece.start, piece.stop, piece.sequence = start, stop, sequence
        self.count += 1
        return 0

    cdef int add_slice(self, Columns columns, Py_ssize_t start, Py_ssize_t stop, quote) except -1:
        cdef Py_ssize_t end
        cdef unsigned long long sequence
        while start < stop:
            columns.seek(start)
            end = columns.run_ends[columns.run]
            sequence = <unsigned long long> columns.sequences[columns.run] + (start - columns.begin)
            self.add(columns.topics[columns.run], start, min(end, stop), sequence, quote)
            start = min(end, stop)
        return 0


cdef class Columns:
    """The runs of a burst, and the one that is looked at."""

    cdef list topics, run_ends, sequences
    cdef Py_ssize_t run, begin

    cdef int seek(self, Py_ssize_t message) except -1:
        """Looks at the run of this message. Slices are in order, with many runs between two of them: the steps
        from the last run become larger."""
        cdef Py_ssize_t low, high, middle, step = 1, runs = len(self.run_ends)
        if message < self.begin:
            self.run = self.begin = 0
        low = high = self.run
        while high < runs and <Py_ssize_t> self.run_ends[high] <= message:
            low, high, step = high + 1, high + step, 2 * step
        high = min(high, runs - 1)
        while low < high:
            middle = (low + high) // 2
            if <Py_ssize_t> self.run_ends[middle] <= message:
                low = middle + 1
            else:
                high = middle
        self.run, self.begin = low, <Py_ssize_t> self.run_ends[low - 1] if low else 0
        return 0


cdef Pieces to_pieces(
    const unsigned char[::1] block, const long long[::1] starts, const long long[::1] ends,
    const unsigned char[::1] digests, list topics, list run_ends, list sequences, const long long[::1] edges,
    quote, long long offset, const long long[::1] times,
):
    """The pieces of slices that were checked: afterwards, they are written without the GIL."""
    cdef Py_ssize_t i, runs = len(run_ends)
    cdef Pieces pieces = Pieces()
    cdef Columns columns = Columns()

    if offset >= 0 and times.shape[0] != starts.shape[0]:
        raise ValueError("each message has a time")
    if digests.shape[0] != SHA1_DIGITS * starts.shape[0]:
        raise ValueError("a sha1 has 40 digits")
    if not len(topics) == runs == len(sequences) or (runs and run_ends[runs - 1] != starts.shape[0]):
        raise ValueError(f"runs that do not fit {starts.shape[0]:,} messages")
    columns.topics, columns.run_ends, columns.sequences = topics, run_ends, sequences
    for i in range(0, edges.shape[0], 2):
        if not 0 <= edges[i] <= edges[i + 1] <= starts.shape[0]:
            raise ValueError(f"a slice from {edges[i]:,} to {edges[i + 1]:,} of {starts.shape[0]:,} messages")
        check_payloads(block.shape[0], starts, ends, edges[i], edges[i + 1])
        pieces.add_slice(columns, edges[i], edges[i + 1], quote)
    return pieces


cdef Py_ssize_t room_of(Pieces pieces, const long long[::1] starts, const long long[::1] ends, bint offsets,
                        bint payloads) noexcept:
    """At least the bytes of all frames, or of all heads."""
    cdef Py_ssize_t i, k, room = 0, position_room = 2 * NUMBER_DIGITS + 22 if offsets else 0
    cdef Piece *piece
    for i in range(pieces.count):
        piece = &pieces.piece[i]
        room += (piece.stop - piece.start) * (piece.size + 2 * NUMBER_DIGITS + SHA1_DIGITS + 64 + position_room)
        if payloads:
            for k in range(piece.start, piece.stop):
                room += ends[k] - starts[k]
    return room


cdef struct Source:
    const unsigned char *block
    const long long *starts
    const long long *ends
    const unsigned char *digests
    const long long *times
    long long offset  # of the first message; negative: the headers have no offsets


cdef char *write_header(char *to, Source *source, Piece *piece, Py_ssize_t k) noexcept nogil:
    to = put_head(to, piece, piece.sequence + (k - piece.start))
    if source.offset >= 0:
        to = put(to, b', "offset": ', 12)
        to = put_number(to, source.offset + k)
        to = put(to, b', "time": ', 10)
        to = put_number(to, source.times[k])
    to = put(to, b', "payload_size": ', 18)
    to = put_number(to, source.ends[k] - source.starts[k])
    to = put(to, b', "checksum": "', 15)
    to = put(to, <const char *> source.digests + SHA1_DIGITS * k, SHA1_DIGITS)
    return put(to, b'"}', 2)


cdef char *write_frames(char *to, Source *source, Pieces pieces) noexcept nogil:
    cdef Py_ssize_t i, k
    cdef Piece *piece
    for i in range(pieces.count):
        piece = &pieces.piece[i]
        for k in range(piece.start, piece.stop):
            to = write_header(to, source, piece, k)
            to = put(to, <const char *> source.block + source.starts[k], source.ends[k] - source.starts[k])
    return to


cdef Source to_source(const unsigned char[::1] block, const long long[::1] starts, const long long[::1] ends,
                      const unsigned char[::1] digests, long long offset, const long long[::1] times) noexcept:
    cdef Source source
    source.block = &block[0] if block.shape[0] else NULL
    source.starts = &starts[0] if starts.shape[0] else NULL
    source.ends = &ends[0] if ends.shape[0] else NULL
    source.digests = &digests[0] if digests.shape[0] else NULL
    source.times = &times[0] if times.shape[0] else NULL
    source.offset = offset
    return source


def frames(const unsigned char[::1] block, const long long[::1] starts, const long long[::1] ends,
           const unsigned char[::1] digests, list topics, list run_ends, list sequences, const long long[::1] edges,
           quote, long long offset=-1, const long long[::1] times=QUADS):
    cdef Pieces pieces = to_pieces(block, starts, ends, digests, topics, run_ends, sequences, edges, quote, offset, times)
    cdef Py_ssize_t room = room_of(pieces, starts, ends, offset >= 0, True)
    cdef bytearray out = PyByteArray_FromStringAndSize(NULL, room)
    cdef char *begin = PyByteArray_AS_STRING(out)
    cdef char *to
    cdef Source source = to_source(block, starts, ends, digests, offset, times)

    if room > LARGE_BYTES:
        with nogil:
            to = write_frames(begin, &source, pieces)
    else:
        to = write_frames(begin, &source, pieces)
    PyByteArray_Resize(out, to - begin)
    return out


def scattered_frames(block, const long long[::1] starts, const long long[::1] ends, const unsigned char[::1] digests,
                     list topics, list run_ends, list sequences, const long long[::1] edges, quote,
                     long long offset=-1, const long long[::1] times=QUADS):
    cdef const unsigned char[::1] bytes_of = block
    cdef Pieces pieces = to_pieces(bytes_of, starts, ends, digests, topics, run_ends, sequences, edges, quote, offset, times)
    cdef bytearray out = PyByteArray_FromStringAndSize(NULL, room_of(pieces, starts, ends, offset >= 0, False))
    cdef char *begin = PyByteArray_AS_STRING(out)
    cdef char *to = begin
    cdef char *header
    cdef Source source = to_source(bytes_of, starts, ends, digests, offset, times)
    cdef Piece *piece
    cdef Py_ssize_t i, k
    cdef object headers = memoryview(out), payloads = memoryview(block)
    cdef list found = []

    for i in range(pieces.count):
        piece = &pieces.piece[i]
        for k in range(piece.start, piece.stop):
            header, to = to, write_header(to, &source, piece, k)
            found.append(headers[header - begin:to - begin])
            found.append(payloads[starts[k]:ends[k]])
    return found


cdef char *put_head(char *to, Piece *piece, unsigned long long sequence) noexcept nogil:
    to = put(to, b'{"topic": ', 10)
    if piece.quoted:
        to = put(to, piece.topic, piece.size)
    else:
        to[0] = 34
        to = put(to + 1, piece.topic, piece.size)
        to[0] = 34
        to += 1
    to = put(to, b', "sequence": ', 14)
    return put_number(to, sequence)
