"""Rows of the form of Persona Hub's elite files, with what is wrong in them."""

from typing import Any

GENERAL = "general domain (top 1 percent)"
SPECIFIC = "specific domain (top 1 percent)"
GENERAL_RARE = "general domain (top 0.1 percent)"
SPECIFIC_RARE = "specific domain (top 0.1 percent)"


def elite(persona: str, general: Any = "None", general_rare: Any = "None", **more: Any) -> dict[str, Any]:
    return {
        "persona": persona,
        GENERAL: general,
        SPECIFIC: "None",
        GENERAL_RARE: general_rare,
        SPECIFIC_RARE: None,
        **more,
    }
