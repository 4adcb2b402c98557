# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The compiled functions of columns.py and bursts.py, which document them.

`gather` collects pointers, allocates, and then copies all columns without the GIL. It releases the GIL once: while the
event loop is busy, getting it back may take milliseconds.
"""

from cpython.array cimport array, clone
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.mem cimport PyMem_Free, PyMem_Realloc
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.limits cimport INT_MAX
from libc.string cimport memcmp, memcpy

from array import array as new_array

from polycast.model import Format

cdef array QUADS = new_array("q")
cdef dict FORMATS = {format_.encode(): format_ for format_ in Format}
cdef object UNKNOWN = Format.BYTES

cdef enum:
    QUAD = 113  # type code q of array
    EDGE_BYTES = 4
    NUMBER_BYTES = 8


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


cdef class Column:
    """Collects values first: `used` of `room` entries. `write` then fills the buffers."""

    cdef void *noted
    cdef Py_ssize_t used, room, item, rows
    cdef tuple buffers

    def __dealloc__(self):
        PyMem_Free(self.noted)

    cdef void *grow(self) except NULL:
        """The entry for the next value."""
        cdef void *noted
        if self.used == self.room:
            self.room = 2 * self.room + 16
            noted = PyMem_Realloc(self.noted, self.room * self.item)
            if noted == NULL:
                raise MemoryError()
            self.noted = noted
        return <char *> self.noted + self.used * self.item

    cdef int allocate(self) except -1:
        raise NotImplementedError


cdef class Numbers(Column):
    cdef long long *to
    cdef Py_ssize_t step

    def __cinit__(self, step=1):
        self.item = sizeof(Number)
        self.step = step

    cdef int add(self, long long first, Py_ssize_t count) except -1:
        cdef Number *number = <Number *> self.grow()
        number.first = first
        number.count = count
        self.used += 1
        self.rows += count
        return 0

    cdef int allocate(self) except -1:
        cdef bytes numbers = PyBytes_FromStringAndSize(NULL, self.rows * NUMBER_BYTES)
        self.to = <long long *> PyBytes_AS_STRING(numbers)
        self.buffers = (numbers,)
        return 0

    cdef void write(self) noexcept nogil:
        cdef Number *number = <Number *> self.noted
        cdef long long *to = self.to
        cdef Py_ssize_t i, k
        for i in range(self.used):
            for k in range(number[i].count):
                to[k] = number[i].first + k * self.step
            to += number[i].count


cdef class Values(Column):
    """Values with a length. Edge 0 is set at the start."""

    cdef int *edge
    cdef char *to
    cdef Py_ssize_t size

    cdef int allocate(self) except -1:
        cdef bytes edges, data
        if self.size > INT_MAX:
            from polycast.log.files.columns import too_large

            raise too_large(self.size)
        edges = PyBytes_FromStringAndSize(NULL, (self.rows + 1) * EDGE_BYTES)
        data = PyBytes_FromStringAndSize(NULL, self.size)
        self.edge = <int *> PyBytes_AS_STRING(edges)
        self.edge[0] = 0
        self.to = PyBytes_AS_STRING(data)
        self.buffers = (edges, data)
        return 0


cdef class Texts(Values):
    def __cinit__(self):
        self.item = sizeof(Text)

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

    cdef void write(self) noexcept nogil:
        cdef Text *text = <Text *> self.noted
        cdef int *edge = self.edge
        cdef char *to = self.to
        cdef Py_ssize_t i, k, size
        for i in range(self.used):
            size = text[i].size
            for k in range(text[i].count):
                edge[k + 1] = edge[0] + <int> (size * (k + 1))
            edge += text[i].count
            repeat(to, text[i].at, size, size * text[i].count)
            to += size * text[i].count


cdef class Payloads(Values):
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


def gather(pieces):
    cdef Numbers offsets = Numbers(), sequences = Numbers(), times = Numbers(0)
    cdef Texts topics = Texts(), dialects = Texts(), formats = Texts(), sources = Texts()
    cdef Payloads payloads = Payloads()
    cdef list columns = [offsets, topics, sequences, times, dialects, formats, payloads, sources]
    cdef Py_ssize_t count

    for burst, source, micros in pieces:
        count = payloads.add(burst)
        offsets.add(burst.offset, count)
        times.add(micros, count)
        dialects.add(burst.dialect, count)
        sources.add(source, count)
        add_runs(burst, count, topics, formats, sequences)
    for column in columns:
        (<Column> column).allocate()
    with nogil:
        offsets.write()
        topics.write()
        sequences.write()
        times.write()
        dialects.write()
        formats.write()
        payloads.write()
        sources.write()
    return [(<Column> column).buffers for column in columns]


def payloads(burst):
    cdef Payloads column = Payloads()
    column.add(burst)
    column.allocate()
    column.write()
    return column.buffers


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
        starts.data.as_longlongs[i] = edges[i] - edges[0]
        ends.data.as_longlongs[i] = edges[i + 1] - edges[0]
    return starts, ends
