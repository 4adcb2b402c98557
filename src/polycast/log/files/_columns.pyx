# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled functions of columns.py and bursts.py, which document them.

A `Packer` collects pointers, takes memory, and then writes and packs all columns without the GIL, completes the head of the message and
hashes it. It releases the GIL once: while the event loop is busy, getting it back may take milliseconds.
"""

from cpython.array cimport array, clone
from cpython.bytearray cimport PyByteArray_AS_STRING
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.limits cimport INT_MAX
from libc.string cimport memcmp, memcpy, memmove, memset

from array import array as new_array

from polycast.log.files.heads import FIRST_BUFFERS, HASH_ADDRESS
from polycast.model import Format

cdef array QUADS = new_array("q")
cdef dict FORMATS = {format_.encode(): format_ for format_ in Format}
cdef object UNKNOWN = Format.BYTES

cdef enum:
    QUAD = 113  # type code q of array
    EDGE_BYTES = 4
    NUMBER_BYTES = 8
    PREFIX = 8  # of a buffer in the body
    ALIGNED = 8
    # LZ4: https://github.com/lz4/lz4/blob/dev/doc/lz4_Block_format.md
    BLOCK_AT = 11  # behind the head of the frame and the size of the block
    FRAME_BYTES = 15
    BLOCK_LIMIT = 4 * 1024 * 1024
    LEAST_MATCH = 4
    MOST_DISTANCE = 65535
    LOWEST = 1 << 4 | 7 - 4 | 8 << 16  # one literal, a match of 7 bytes, its distance of 8 bytes
    LAST_LITERALS = 5  # at the end of a block
    LAST_MATCH = 12  # a match begins no later than this before the end
    MEMORY_LIMIT = 16 * 1024 * 1024
    PAGE_BYTES = 4096
    REGIONS = 13  # the buffers of all columns
    PAYLOADS = 10  # the one with the payloads
    FIRST = 8  # regions that begin a column
    DIGITS = 12
    CHECKSUM = 32

cdef struct Hash:
    unsigned long long low
    unsigned long long high


ctypedef Hash (*HashFunction)(const void *data, size_t size, unsigned long long seed) noexcept nogil

cdef HashFunction hash_function = <HashFunction> <size_t> HASH_ADDRESS
cdef const char *HEX = b"0123456789abcdef"
cdef char IS_FIRST[REGIONS]
for number in range(REGIONS):
    IS_FIRST[number] = number in FIRST_BUFFERS

cdef const char *FRAME_HEAD = b"\x04\x22\x4d\x18\x60\x70\x73"  # magic; one independent block of at most 4 MiB


cdef struct Number:
    long long first
    Py_ssize_t count


cdef struct Text:
    const char *at
    Py_ssize_t size
    Py_ssize_t count


cdef struct Part:
    Py_buffer block
    Py_buffer starts
    Py_buffer ends
    Py_ssize_t count


cdef struct Region:
    char *at
    Py_ssize_t size  # without padding; 0: an empty buffer


cdef inline Py_ssize_t padded(Py_ssize_t size) noexcept nogil:
    return (size + ALIGNED - 1) // ALIGNED * ALIGNED


cdef inline Py_ssize_t room_for(Py_ssize_t size) noexcept nogil:
    return padded(PREFIX + size)


cdef Region to_region(char *at, Py_ssize_t size, long long plain_size) noexcept nogil:
    """A buffer of the body whose data stand behind the room for the prefix."""
    cdef Region region
    memcpy(at, &plain_size, PREFIX)
    region.at, region.size = at, PREFIX + size if size else 0
    memset(at + region.size, 0, padded(region.size) - region.size)
    return region


cdef class Column:
    """Collects runs first: `used` of `room` entries. `need`, `place` and `write` then fill memory of the caller."""

    cdef void *noted
    cdef Py_ssize_t used, room, item, rows

    def __dealloc__(self):
        PyMem_Free(self.noted)

    cdef void *grow(self) except NULL:
        """The entry for the next run."""
        cdef void *noted
        if self.used == self.room:
            self.room = 2 * self.room + 16
            noted = PyMem_Realloc(self.noted, self.room * self.item)
            if noted == NULL:
                raise MemoryError()
            self.noted = noted
        return <char *> self.noted + self.used * self.item


cdef class Repeats:
    """Bytes that repeat themselves, and the same bytes as an LZ4 frame with one block.

    The caller knows where bytes repeat, so nothing is searched: each repetition is one match of the block.
    """

    cdef char *begins
    cdef char *plain
    cdef char *packed
    cdef char *out
    cdef Py_ssize_t size, anchor
    cdef Region region

    cdef Py_ssize_t need(self, Py_ssize_t size):
        self.size = size
        return room_for(size) + room_for(size + size // 128 + FRAME_BYTES + 64)

    cdef char *place(self, char *at):
        """The memory behind it."""
        self.begins, self.plain = at, at + PREFIX
        self.packed = self.begins + room_for(self.size) + PREFIX
        self.out, self.anchor = self.packed + BLOCK_AT, 0
        return at + self.need(self.size)

    cdef inline void repeat(self, Py_ssize_t at, Py_ssize_t distance, Py_ssize_t count) noexcept nogil:
        """`count` bytes from `at` on are the same as those `distance` before."""
        count = min(at + count, self.size - LAST_LITERALS) - at
        if count < LEAST_MATCH or at > self.size - LAST_MATCH or not 0 < distance <= MOST_DISTANCE:
            return
        self.out = put_literals(self.out, self.plain + self.anchor, at - self.anchor, min(count - LEAST_MATCH, 15))
        self.out[0] = <char> (distance & 255)
        self.out[1] = <char> (distance >> 8)
        self.out += 2
        if count - LEAST_MATCH >= 15:
            self.out = put_length(self.out, count - LEAST_MATCH - 15)
        self.anchor = at + count

    cdef inline bint count_lowest(self, Py_ssize_t at, Py_ssize_t count) noexcept nogil:
        """So many numbers from `at` on, of which only the lowest byte differs from the number before: `repeat` for each
        of them writes a token, that byte and the distance. False: they are not between two matches."""
        cdef unsigned int low = <unsigned char> self.plain[at], word
        cdef Py_ssize_t i
        if self.anchor != at or at + count * NUMBER_BYTES > self.size - LAST_MATCH:
            return False
        for i in range(count):
            word = LOWEST | (low + <unsigned int> i) << 8
            memcpy(self.out + i * sizeof(word), &word, sizeof(word))
        self.out += count * sizeof(word)
        self.anchor = at + count * NUMBER_BYTES
        return True

    cdef void end(self) noexcept nogil:
        """The frame, or the bytes as they are if the frame would not be smaller."""
        cdef unsigned int size
        cdef Py_ssize_t frame
        self.out = put_literals(self.out, self.plain + self.anchor, self.size - self.anchor, 0)
        size = <unsigned int> (self.out - self.packed - BLOCK_AT)
        memcpy(self.packed, FRAME_HEAD, BLOCK_AT - sizeof(size))
        memcpy(self.packed + BLOCK_AT - sizeof(size), &size, sizeof(size))
        memset(self.out, 0, sizeof(size))
        frame = self.out + sizeof(size) - self.packed
        if self.size > BLOCK_LIMIT or frame >= self.size:
            self.region = to_region(self.begins, self.size, -1)
        else:
            self.region = to_region(self.packed - PREFIX, frame, self.size)


cdef char *put_literals(char *out, const char *literals, Py_ssize_t count, int match) noexcept nogil:
    """The token, with the length of the match that follows, and the literals before it."""
    out[0] = <char> (min(count, 15) << 4 | match)
    out += 1
    if count >= 15:
        out = put_length(out, count - 15)
    memcpy(out, literals, count)
    return out + count


cdef char *put_length(char *out, Py_ssize_t rest) noexcept nogil:
    while rest >= 255:
        out[0] = <char> 255
        out += 1
        rest -= 255
    out[0] = <char> rest
    return out + 1


cdef class Numbers(Column):
    cdef Repeats repeats
    cdef Py_ssize_t step

    def __cinit__(self, step=1):
        self.item = sizeof(Number)
        self.step = step
        self.repeats = Repeats()

    cdef int add(self, long long first, Py_ssize_t count) except -1:
        cdef Number *number = <Number *> self.grow()
        number.first = first
        number.count = count
        self.used += 1
        self.rows += count
        return 0

    cdef Py_ssize_t need(self):
        return self.repeats.need(self.rows * NUMBER_BYTES)

    cdef char *place(self, char *at):
        return self.repeats.place(at)

    cdef void write(self) noexcept nogil:
        cdef Number *number = <Number *> self.noted
        cdef long long *to = <long long *> self.repeats.plain
        cdef Py_ssize_t i, k, at = 0
        for i in range(self.used):
            for k in range(number[i].count):
                to[k] = number[i].first + k * self.step
            to += number[i].count
            if self.step:
                self.pack_counting(at, number[i].first, number[i].count)
            else:
                self.repeats.repeat(at + NUMBER_BYTES, NUMBER_BYTES, (number[i].count - 1) * NUMBER_BYTES)
            at += number[i].count * NUMBER_BYTES
        self.repeats.end()

    cdef void pack_counting(self, Py_ssize_t at, long long first, Py_ssize_t count) noexcept nogil:
        """From one number to the next, the lowest byte changes, or the lowest two; more change too seldom to matter."""
        cdef Py_ssize_t k = 1, changed, many
        while k < count:
            changed = 1 if (first + k) & 0xFF else 2
            many = min(count - k, 256 - ((first + k) & 0xFF))
            if changed == 1 and self.repeats.count_lowest(at + k * NUMBER_BYTES, many):
                k += many
                continue
            if (first + k) & 0xFFFF:
                self.repeats.repeat(at + k * NUMBER_BYTES + changed, NUMBER_BYTES, NUMBER_BYTES - changed)
            k += 1


cdef class Values(Column):
    """Values with a length. Edge 0 is set at the start."""

    cdef int *edge
    cdef Py_ssize_t size
    cdef Region edges

    cdef Py_ssize_t need_edges(self) except -1:
        if self.size > INT_MAX:
            from polycast.log.files.columns import too_large

            raise too_large(self.size)
        return room_for((self.rows + 1) * EDGE_BYTES)

    cdef char *place_edges(self, char *at) noexcept nogil:
        cdef Py_ssize_t size = (self.rows + 1) * EDGE_BYTES
        self.edges = to_region(at, size, -1)
        self.edge = <int *> (at + PREFIX)
        self.edge[0] = 0
        return at + room_for(size)


cdef class Texts(Values):
    cdef Repeats repeats

    def __cinit__(self):
        self.item = sizeof(Text)
        self.repeats = Repeats()

    cdef int add(self, value, Py_ssize_t count) except -1:
        """Stores a pointer: the caller must keep `value` alive."""
        cdef Text *text = <Text *> self.grow()
        if isinstance(value, str):
            text.at = PyUnicode_AsUTF8AndSize(value, &text.size)
        else:
            text.at = PyBytes_AS_STRING(<bytes?> value)
            text.size = PyBytes_GET_SIZE(value)
        text.count = count
        self.used += 1
        self.rows += count
        self.size += text.size * count
        return 0

    cdef Py_ssize_t need(self) except -1:
        return self.need_edges() + self.repeats.need(self.size)

    cdef char *place(self, char *at) except NULL:
        return self.repeats.place(self.place_edges(at))

    cdef void write(self) noexcept nogil:
        cdef Text *text = <Text *> self.noted
        cdef int *edge = self.edge
        cdef Py_ssize_t i, k, size, at = 0
        for i in range(self.used):
            size = text[i].size
            for k in range(text[i].count):
                edge[k + 1] = edge[0] + <int> (size * (k + 1))
            edge += text[i].count
            repeat(self.repeats.plain + at, text[i].at, size, size * text[i].count)
            self.repeats.repeat(at + size, size, size * (text[i].count - 1))
            at += size * text[i].count
        self.repeats.end()


cdef class Payloads(Values):
    cdef Region data
    cdef char *to

    def __cinit__(self):
        self.item = sizeof(Part)

    def __dealloc__(self):
        cdef Part *part = <Part *> self.noted
        cdef Py_ssize_t i
        for i in range(self.used):
            PyBuffer_Release(&part[i].block)
            PyBuffer_Release(&part[i].starts)
            PyBuffer_Release(&part[i].ends)

    cdef Py_ssize_t add(self, burst) except -1:
        """The number of values."""
        cdef Part *part = <Part *> self.grow()
        cdef array starts = to_quads(burst.starts), ends = to_quads(burst.ends)
        part.count = len(starts)
        if len(ends) != part.count:
            raise ValueError(f"{part.count:,} starts and {len(ends):,} ends")
        PyObject_GetBuffer(burst.block, &part.block, PyBUF_SIMPLE)
        PyObject_GetBuffer(starts, &part.starts, PyBUF_SIMPLE)
        PyObject_GetBuffer(ends, &part.ends, PyBUF_SIMPLE)
        self.used += 1
        self.rows += part.count
        self.size += size_of(part)
        return part.count

    cdef Py_ssize_t need(self) except -1:
        return self.need_edges() + room_for(self.size)

    cdef char *place(self, char *at) noexcept nogil:
        at = self.place_edges(at)
        self.data = to_region(at, self.size, -1)
        self.to = at + PREFIX
        return at + room_for(self.size)

    cdef void write(self) noexcept nogil:
        cdef Part *part = <Part *> self.noted
        cdef const long long *starts
        cdef const long long *ends
        cdef int *edge = self.edge
        cdef char *to = self.to
        cdef Py_ssize_t i, k, size
        for i in range(self.used):
            starts, ends = <const long long *> part[i].starts.buf, <const long long *> part[i].ends.buf
            for k in range(part[i].count):
                size = ends[k] - starts[k]
                memcpy(to, <const char *> part[i].block.buf + starts[k], size)
                to += size
                edge[k + 1] = <int> (to - self.to)
            edge += part[i].count


cdef array to_quads(column):
    if isinstance(column, array) and (<array> column).ob_descr.typecode == QUAD:
        return column
    return new_array("q", column)


cdef Py_ssize_t size_of(Part *part) except -1:
    cdef const long long *starts = <const long long *> part.starts.buf
    cdef const long long *ends = <const long long *> part.ends.buf
    cdef Py_ssize_t i, size = 0
    for i in range(part.count):
        if not 0 <= starts[i] <= ends[i] <= part.block.len:
            raise ValueError(
                f"a payload from {starts[i]:,} to {ends[i]:,} in a block of {part.block.len:,} bytes"
            )
        size += ends[i] - starts[i]
    return size


cdef void repeat(char *to, const char *value, Py_ssize_t size, Py_ssize_t total) noexcept nogil:
    """Copies the value once, and then doubles the copied bytes."""
    cdef Py_ssize_t done = size
    if total:
        memcpy(to, value, size)
    while done < total:
        memcpy(to + done, to, min(done, total - done))
        done *= 2


cdef inline char *end_of(Region region) noexcept nogil:
    return region.at + padded(region.size)


cdef char *join(Region *regions, Py_ssize_t count, char *to) noexcept nogil:
    """Moves regions to there, one behind the other. The end of the last one."""
    cdef Py_ssize_t i
    for i in range(count):
        move(&regions[i], to)
        to = end_of(regions[i])
    return to


cdef inline void move(Region *region, char *to) noexcept nogil:
    if to != region.at:
        memmove(to, region.at, padded(region.size))
        region.at = to


cdef struct Head:
    const char *data
    Py_ssize_t size
    unsigned long long seed
    Py_ssize_t digits, checksum, buffers, body_size


cdef Head to_head(head) except *:
    cdef Head found
    found.data, found.size = PyByteArray_AS_STRING(head.data), len(head.data)
    found.seed = head.seed
    found.digits, found.checksum, found.buffers, found.body_size = head.size, head.checksum, head.buffers, head.body_size
    if (
        min(found.digits, found.checksum, found.buffers, found.body_size) < 0
        or found.digits + DIGITS > found.size
        or found.checksum + CHECKSUM > found.size
        or found.buffers + 2 * (REGIONS + FIRST) * NUMBER_BYTES > found.size
        or found.body_size + NUMBER_BYTES > found.size
    ):
        raise ValueError("a position outside of the head")
    return found


cdef char *put_number(char *to, long long number) noexcept nogil:
    memcpy(to, &number, NUMBER_BYTES)
    return to + NUMBER_BYTES


cdef void complete(char *message, char *end, Head *head, Region *regions) noexcept nogil:
    """Puts the head in front of the columns, and completes it."""
    cdef char *columns = regions[0].at
    cdef char *to = message + head.buffers
    cdef Py_ssize_t i
    cdef Hash hashed
    memcpy(message, head.data, head.size)
    for i in range(REGIONS):
        if IS_FIRST[i]:
            to = put_number(put_number(to, regions[i].at - columns), 0)
        to = put_number(put_number(to, regions[i].at - columns), regions[i].size)
    put_number(message + head.body_size, end - columns)
    put_digits(message + head.digits, end - message)
    hashed = hash_function(message, end - message, head.seed)
    put_hex(message + head.checksum, hashed.high)
    put_hex(message + head.checksum + CHECKSUM // 2, hashed.low)


cdef void put_digits(char *to, Py_ssize_t number) noexcept nogil:
    cdef int i = DIGITS - 1
    while i >= 0 and (number or i == DIGITS - 1):
        to[i] = <char> (48 + number % 10)
        number //= 10
        i -= 1


cdef void put_hex(char *to, unsigned long long number) noexcept nogil:
    cdef int i
    for i in range(15, -1, -1):
        to[i] = HEX[number & 15]
        number >>= 4


cdef class Columns:
    """Pointers into the bursts of a group, and then the columns in memory of the caller."""

    cdef Numbers offsets, sequences, times
    cdef Texts topics, dialects, formats, sources
    cdef Payloads payloads

    def __cinit__(self, pieces):
        cdef Py_ssize_t count
        self.offsets, self.sequences, self.times = Numbers(), Numbers(), Numbers(0)
        self.topics, self.dialects, self.formats, self.sources = Texts(), Texts(), Texts(), Texts()
        self.payloads = Payloads()
        for burst, source, micros in pieces:
            count = self.payloads.add(burst)
            self.offsets.add(burst.offset, count)
            self.times.add(micros, count)
            self.dialects.add(burst.dialect, count)
            self.sources.add(source, count)
            add_runs(burst, count, self.topics, self.formats, self.sequences)

    cdef Py_ssize_t need(self) except -1:
        return (
            self.offsets.need() + self.topics.need() + self.sequences.need() + self.times.need()
            + self.dialects.need() + self.formats.need() + self.payloads.need() + self.sources.need()
        )

    cdef int place(self, char *at) except -1:
        """Room for each column before it is packed. The payloads are written when their place is known."""
        at = self.sequences.place(self.topics.place(self.offsets.place(at)))
        at = self.formats.place(self.dialects.place(self.times.place(at)))
        self.sources.place(at + self.payloads.need())
        return 0

    cdef char *write(self, char *to, Region *regions) noexcept nogil:
        """All regions from there on, which is not behind the first place. Their end."""
        self.offsets.write()
        self.topics.write()
        self.sequences.write()
        self.times.write()
        self.dialects.write()
        self.formats.write()
        self.sources.write()
        regions[0] = self.offsets.repeats.region
        regions[1], regions[2] = self.topics.edges, self.topics.repeats.region
        regions[3] = self.sequences.repeats.region
        regions[4] = self.times.repeats.region
        regions[5], regions[6] = self.dialects.edges, self.dialects.repeats.region
        regions[7], regions[8] = self.formats.edges, self.formats.repeats.region
        self.payloads.place(join(regions, PAYLOADS - 1, to))
        self.payloads.write()
        regions[9], regions[PAYLOADS] = self.payloads.edges, self.payloads.data
        regions[11], regions[12] = self.sources.edges, self.sources.repeats.region
        return join(&regions[PAYLOADS + 1], REGIONS - PAYLOADS - 1, end_of(regions[PAYLOADS]))


cdef class Packer:
    cdef object memory, packed, message, in_python

    def __cinit__(self):
        from polycast.log.files.columns import PackedColumns, PackedMessage, PackerInPython

        self.memory = bytearray()
        self.packed, self.message, self.in_python = PackedColumns, PackedMessage, PackerInPython

    def pack(self, pieces):
        cdef Columns columns = Columns(pieces)
        cdef Py_ssize_t i
        cdef Region regions[REGIONS]
        cdef char *body = self.provide(columns.need(), 0)
        cdef char *end

        columns.place(body)
        with nogil:
            end = columns.write(body, regions)
        return self.packed(columns.payloads.rows, [regions[i].size for i in range(REGIONS)], self.view(body, end))

    def pack_message(self, pieces, open_head, Py_ssize_t position):
        cdef Columns columns
        cdef Head head = to_head(open_head)
        cdef Region regions[REGIONS]
        cdef char *message
        cdef char *end

        if hash_function == NULL:
            return self.in_python.pack_message(self, pieces, open_head, position)
        columns = Columns(pieces)
        message = self.provide(head.size + columns.need(), position % PAGE_BYTES)
        columns.place(message + head.size)
        with nogil:
            end = columns.write(message + head.size, regions)
            complete(message, end, &head, regions)
        checksum = PyBytes_FromStringAndSize(message + head.checksum, CHECKSUM)
        return self.message(self.view(message, end), checksum.decode())

    cdef char *provide(self, Py_ssize_t size, Py_ssize_t skip) except NULL:
        """Memory, so many bytes behind the beginning of a page.

        It was used before, if it is large enough, and not far too large for most groups.
        """
        cdef Py_ssize_t room = len(self.memory)
        cdef char *memory
        size += 2 * PAGE_BYTES
        if size > room or room > MEMORY_LIMIT > size:
            self.memory = bytearray(size + size // 4)
        memory = PyByteArray_AS_STRING(self.memory)
        return <char *> ((<size_t> memory + PAGE_BYTES - 1) // PAGE_BYTES * PAGE_BYTES + skip)

    cdef object view(self, char *start, char *stop):
        cdef char *memory = PyByteArray_AS_STRING(self.memory)
        return memoryview(self.memory)[start - memory : stop - memory]


def payloads(burst):
    cdef Payloads column = Payloads()
    cdef bytes edges, data
    column.add(burst)
    column.need()
    edges = PyBytes_FromStringAndSize(NULL, (column.rows + 1) * EDGE_BYTES)
    data = PyBytes_FromStringAndSize(NULL, column.size)
    column.edge, column.to = <int *> PyBytes_AS_STRING(edges), PyBytes_AS_STRING(data)
    column.edge[0] = 0
    column.write()
    return edges, data


cdef int add_runs(burst, Py_ssize_t rows, Texts topics, Texts formats, Numbers sequences) except -1:
    cdef list its_topics = burst.topics, its_formats = burst.formats
    cdef list its_sequences = burst.sequences, run_ends = burst.run_ends
    cdef Py_ssize_t i, start = 0, end, runs = len(run_ends)
    if not len(its_topics) == len(its_formats) == len(its_sequences) == runs:
        raise ValueError(f"{len(its_topics)} topics and {len(its_sequences)} sequences of {runs} runs")
    for i in range(runs):
        end = run_ends[i]
        if end < start:
            raise ValueError(f"a run that ends at {end:,} behind one that ends at {start:,}")
        topics.add(its_topics[i], end - start)
        formats.add(its_formats[i], end - start)
        sequences.add(its_sequences[i], end - start)
        start = end
    if start != rows:
        raise ValueError(f"runs of {start:,} messages in a burst of {rows:,}")
    return 0


cdef struct Edges:
    const int *edge
    const char *data


cdef Edges edges_of(texts):
    cdef const int[::1] edges = texts.edges
    cdef const unsigned char[::1] data = texts.data
    cdef Edges found
    found.edge = &edges[0]
    found.data = <const char *> &data[0] if data.shape[0] else NULL
    return found


cdef inline bint same_as_before(Edges *texts, Py_ssize_t row) noexcept:
    cdef const int *edge = texts.edge + row - 1
    cdef int size = edge[1] - edge[0]
    return edge[2] - edge[1] == size and memcmp(texts.data + edge[0], texts.data + edge[1], size) == 0


cdef inline bytes value_of(Edges *texts, Py_ssize_t row):
    cdef const int *edge = texts.edge + row
    return PyBytes_FromStringAndSize(texts.data + edge[0], edge[1] - edge[0])


cdef class Runs:
    """The runs of a range of consecutive offsets."""

    cdef list topics, formats, run_ends, sequences
    cdef Py_ssize_t first

    def __cinit__(self, Py_ssize_t first):
        self.first = first
        self.topics, self.formats, self.run_ends, self.sequences = [], [], [], []

    cdef int begin_run(self, Py_ssize_t row, bytes topic, format_, long long sequence) except -1:
        if row > self.first:
            self.run_ends.append(row - self.first)
        self.topics.append(topic)
        self.formats.append(format_)
        self.sequences.append(sequence)
        return 0

    cdef tuple close(self, Py_ssize_t row):
        self.run_ends.append(row - self.first)
        return self.first, self.topics, self.formats, self.run_ends, self.sequences


def stretches(const long long[::1] offsets, topics, const long long[::1] sequences, formats):
    cdef Edges topic = edges_of(topics), format_ = edges_of(formats)
    cdef Py_ssize_t row
    cdef Runs runs = Runs(0)
    cdef list found = []
    cdef bint same_format

    for row in range(offsets.shape[0]):
        same_format = row > 0 and same_as_before(&format_, row)
        if row > 0 and offsets[row] != offsets[row - 1] + 1:
            found.append(runs.close(row))
            runs = Runs(row)
        elif same_format and sequences[row] == sequences[row - 1] + 1 and same_as_before(&topic, row):
            continue
        if not same_format:
            member = FORMATS.get(value_of(&format_, row), UNKNOWN)
        runs.begin_run(row, value_of(&topic, row), member, sequences[row])
    found.append(runs.close(offsets.shape[0]))
    return found


def spans(const int[::1] edges):
    cdef Py_ssize_t i, count = edges.shape[0] - 1
    cdef array starts = clone(QUADS, count, False), ends = clone(QUADS, count, False)
    for i in range(count):
        if edges[i + 1] < edges[i]:
            raise ValueError("a value ends before it begins")
        starts.data.as_longlongs[i] = edges[i] - edges[0]
        ends.data.as_longlongs[i] = edges[i + 1] - edges[0]
    return starts, ends
