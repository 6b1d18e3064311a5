"""The coordinator's log: JSON lines, never with text from a transcript."""

from __future__ import annotations

import logging
import sys

import structlog


def configure() -> None:
    """Log to standard error, which the starter has pointed at the log file."""
    structlog.configure(
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )
