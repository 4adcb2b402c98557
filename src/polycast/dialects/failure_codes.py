"""The codes of failed requests, as in HTTP: by the first word of the failure."""

CODES = {
    "BadRequest": 400,
    "Forbidden": 403,
    "NotFound": 404,
    "TooLarge": 413,
    "NoLog": 501,
    "Busy": 503,
    "Gone": 503,
    "Timeout": 504,
}


def code_of(failure: str) -> int:
    """500 for any other word."""
    return CODES.get(failure.partition(":")[0], 500)
