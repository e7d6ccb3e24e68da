"""What checks say."""

from distcourse.check import Check, CheckFailed


def verdict(judge, *args, **kwargs) -> str:
    """Return the text of a check that one judge fills; empty if it passes."""
    try:
        with Check("x", hints=False) as check:
            judge(check, *args, **kwargs)
    except CheckFailed as error:
        return str(error)
    return ""
