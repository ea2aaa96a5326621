"""Modes as JSON: one schema for files, the service and the downloads of its page."""

from __future__ import annotations

import json
from typing import Any

from mue.modes import By, Modes


def json_bytes(value: dict[str, Any]) -> bytes:
    """The content of a file, for people to read."""
    return (json.dumps(value, indent=2) + "\n").encode()


def modes_json(modes: Modes, *, by: By) -> dict[str, Any]:
    """The modes of one input: rank, probability and members of each, `rest` and entropy."""
    prob, code = modes.answer_prob[0].tolist(), modes.answer_code[0].tolist()
    mode, spread = modes.mode[0].tolist(), modes.spread[0].tolist()
    ranked = zip(modes.prob[0].tolist(), modes.representative[0].tolist(), spread, strict=True)
    return {
        "by": by,
        "cut": modes.cut,
        "coverage": modes.coverage,
        "modes": [
            {
                "rank": i + 1,
                "prob": p,
                "code": code[j],
                "spread": s,
                "members": [
                    {"prob": prob[a], "code": code[a]} for a, m in enumerate(mode) if m == i
                ],
            }
            for i, (p, j, s) in enumerate(ranked)
        ],
        "rest": modes.rest[0].item(),
        "entropy": modes.entropy()[0].item(),
    }
