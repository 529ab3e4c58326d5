"""Read the settings file: the one place where its path, its bytes and its mistakes meet.

Shared by every command, so that all of them refuse the same file with the same sentence.
"""

from pathlib import Path

from cardwise.errors import BadSettings
from cardwise.settings import Settings, parse


def read(path: Path | None) -> Settings:
    """The settings of a file; None is all defaults.

    Raises:
        BadSettings: one sentence that names the file, and the key where one is wrong.
    """
    if path is None:
        return Settings()
    try:
        return parse(path.read_text(encoding="utf-8-sig"))
    except UnicodeError as error:
        raise BadSettings(f"{path}: it can't be read: it is not UTF-8") from error
    except OSError as error:
        raise BadSettings(f"{path}: it can't be read: {error.strerror}") from error
    except BadSettings as error:
        raise BadSettings(f"{path}: {error}") from error
