"""The coordinator's log: JSON lines, never with text from a transcript, and no secret at all."""

from __future__ import annotations

import logging
import sys

import structlog
from structlog.typing import EventDict

from optchat.masking import mask


def configure() -> None:
    """Log to standard error, which the starter has pointed at the log file."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            _masked,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )


def _masked(_logger: object, _method: str, event: EventDict) -> EventDict:
    """What an error of a library or of the machine quotes is not known beforehand."""
    return {key: mask(v) if isinstance(v, str) else v for key, v in event.items()}
