# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, cdivision=True
"""The functions of runs.py, in C."""

from cpython.array cimport array, clone
from cpython.dict cimport PyDict_GetItemWithError, PyDict_SetItem
from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.ref cimport PyObject

from array import array as new_array

from polycast.model import PackedSlices

cdef array QUADS = new_array("q")


cdef class Topic:
    cdef public str name
    cdef public object audience
    cdef public long long next_sequence, last_offset, index_version

    def __init__(self, str name not None, long long next_sequence, long long last_offset=-1):
        self.name = name
        self.next_sequence = next_sequence
        self.last_offset = last_offset
        self.index_version = -1


def number(dict young not None, use, list keys not None, list run_ends not None, long long offset):
    cdef Py_ssize_t i, count = len(keys)
    cdef long long start = 0, stop
    cdef list topics = [None] * count, sequences = [None] * count
    cdef PyObject *found
    cdef Topic topic

    if len(run_ends) != count:
        raise ValueError(f"{count} topics of {len(run_ends)} runs")
    for i in range(count):
        found = PyDict_GetItemWithError(young, keys[i])
        topics[i] = <Topic?> found if found != NULL else use(keys[i])
    for i in range(count):
        topic = <Topic> topics[i]
        stop = run_ends[i]
        sequences[i] = topic.next_sequence
        topic.next_sequence += stop - start
        topic.last_offset = offset + stop - 1
        start = stop
    return topics, sequences


cdef class Stretches:
    """Consecutive messages with one audience, each with the number of its audience."""

    cdef dict numbers
    cdef Py_ssize_t count
    cdef Py_ssize_t *audience
    cdef long long *start
    cdef long long *stop

    def __cinit__(self, Py_ssize_t room):
        self.numbers = {}
        self.audience = <Py_ssize_t *> PyMem_Malloc(room * sizeof(Py_ssize_t))
        self.start = <long long *> PyMem_Malloc(room * sizeof(long long))
        self.stop = <long long *> PyMem_Malloc(room * sizeof(long long))
        if self.audience == NULL or self.start == NULL or self.stop == NULL:
            raise MemoryError

    def __dealloc__(self):
        PyMem_Free(self.audience)
        PyMem_Free(self.start)
        PyMem_Free(self.stop)

    cdef int begin(self, audience, long long start) except -1:
        cdef PyObject *found = PyDict_GetItemWithError(self.numbers, audience)
        cdef Py_ssize_t number = len(self.numbers)
        if found != NULL:
            number = <object> found
        else:
            PyDict_SetItem(self.numbers, audience, number)
        self.audience[self.count] = number
        self.start[self.count] = start
        self.count += 1
        return 0

    cdef list by_audience(self):
        """The slices of each audience, in the order of their first messages."""
        cdef Py_ssize_t i, number, groups = len(self.numbers)
        cdef array filled = clone(QUADS, groups, True), messages = clone(QUADS, groups, True), edges
        cdef list columns = []
        for i in range(self.count):
            filled.data.as_longlongs[self.audience[i]] += 2
        for number in range(groups):
            columns.append(clone(QUADS, filled.data.as_longlongs[number], False))
            filled.data.as_longlongs[number] = 0
        for i in range(self.count):
            number = self.audience[i]
            edges = <array> columns[number]
            edges.data.as_longlongs[filled.data.as_longlongs[number]] = self.start[i]
            edges.data.as_longlongs[filled.data.as_longlongs[number] + 1] = self.stop[i]
            filled.data.as_longlongs[number] += 2
            messages.data.as_longlongs[number] += self.stop[i] - self.start[i]
        return [
            (audience, PackedSlices(columns[number], messages.data.as_longlongs[number]))
            for audience, number in self.numbers.items()
            if audience.members
        ]


def group(list topics not None, list run_ends not None, long long version, refresh, bint local):
    cdef Py_ssize_t i, count = len(topics)
    cdef long long start = 0
    cdef Stretches found = Stretches(count)
    cdef Topic topic
    cdef object current = None

    if len(run_ends) != count:
        raise ValueError(f"{count} topics of {len(run_ends)} runs")
    for i in range(count):
        topic = <Topic?> topics[i]
        if topic.index_version != version:
            refresh(topic)
        if topic.audience is not current:
            if i:
                found.stop[found.count - 1] = start
            current = topic.audience
            found.begin(current.local if local else current, start)
        start = run_ends[i]
    if count:
        found.stop[found.count - 1] = start
    return found.by_audience()
