"""pyarrow, in a process that does nothing but keep or read a log."""

from __future__ import annotations

import sys

import pyarrow as pa


class _NoPandas:
    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError(name)


def leave_pandas_out() -> None:
    """With the first array it makes, pyarrow imports pandas wherever that is installed, to recognise its objects.

    A broker has none, and need not take half a second longer and 50 MB more for them. pyarrow looks only once; who
    asks it for a DataFrame later still gets one.
    """
    sys.meta_path.insert(0, _NoPandas)
    try:
        pa.array([])
    finally:
        sys.meta_path.remove(_NoPandas)
