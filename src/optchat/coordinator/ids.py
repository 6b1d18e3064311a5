"""Where a running process takes its ids from."""

from __future__ import annotations

import uuid_utils


class RandomIds:
    """Time-ordered random ids; what tests inject instead is deterministic."""

    def new_id(self) -> str:
        return uuid_utils.uuid7().hex
