# cython: language_level=3
"""The compiled function of disk.py: a group is written with one release of the GIL."""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from libc.errno cimport EINTR, EINVAL, errno
from posix.types cimport off_t

cdef extern from "<unistd.h>" nogil:
    ssize_t pwrite(int fd, const void *data, size_t size, off_t position)

import os

cdef enum:
    PAGE_BYTES = 4096
    DIRECT_BYTES = 1024 * 1024  # fewer take longer than through the page cache


cdef int write_all(int fd, const char *data, Py_ssize_t size, off_t position) noexcept nogil:
    """0, or the number of the error."""
    cdef ssize_t done
    while size:
        done = pwrite(fd, data, size, position)
        if done < 0:
            if errno != EINTR:
                return errno
            continue
        data += done
        size -= done
        position += done
    return 0


cdef int write_direct(int direct, int fd, const char *data, Py_ssize_t size, off_t position) noexcept nogil:
    """Whole pages past the page cache, the rest through it; everything, where the file system cannot do that."""
    cdef Py_ssize_t skip = (PAGE_BYTES - position % PAGE_BYTES) % PAGE_BYTES
    cdef Py_ssize_t pages = (size - skip) // PAGE_BYTES * PAGE_BYTES
    cdef int error = EINVAL
    if direct >= 0 and pages >= DIRECT_BYTES and <size_t> (data + skip) % PAGE_BYTES == 0:
        error = write_all(direct, data + skip, pages, position + skip)
    if error == EINVAL:
        return write_all(fd, data, size, position)
    skip += pages
    error = error or write_all(fd, data + skip, size - skip, position + skip)
    return error or write_all(fd, data, skip - pages, position)


def append(int fd, data, off_t position, Py_ssize_t prefix, int direct):
    cdef Py_buffer view
    cdef int error
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= prefix <= view.len:
            raise ValueError(f"a prefix of {prefix} bytes in {view.len:,}")
        with nogil:
            error = write_direct(direct, fd, <const char *> view.buf + prefix, view.len - prefix, position + prefix)
            error = error or write_all(fd, <const char *> view.buf, prefix, position)
    finally:
        PyBuffer_Release(&view)
    if error:
        raise OSError(error, os.strerror(error))
