"""Only what pyproject.toml cannot say: the compiled leaves are optional.

Without a C compiler the install succeeds and the same functions run in plain Python (`polycast doctor` tells
which ones run).
"""

from setuptools import Extension, setup

setup(
    ext_modules=[
        Extension("polycast.dialects._scan", ["src/polycast/dialects/_scan.pyx"], optional=True),
        Extension("polycast.dialects.web._frames", ["src/polycast/dialects/web/_frames.pyx"], optional=True),
        Extension("polycast.dialects.hermod._scan", ["src/polycast/dialects/hermod/_scan.pyx"], optional=True),
        Extension("polycast.dialects.ubre._scan", ["src/polycast/dialects/ubre/_scan.pyx"], optional=True),
        Extension("polycast.routing._runs", ["src/polycast/routing/_runs.pyx"], optional=True),
        Extension("polycast.log.files._disk", ["src/polycast/log/files/_disk.pyx"], optional=True),
        Extension("polycast.log.files._columns", ["src/polycast/log/files/_columns.pyx"], optional=True),
    ]
)
