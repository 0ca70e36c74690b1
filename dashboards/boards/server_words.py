"""Why a panel of the Server board has no data."""

from __future__ import annotations

WITHHELD = "Not known: the server is not up, or the number is among the withheld"
NO_PAGE = "No page: the server is not up, or cannot be read"
