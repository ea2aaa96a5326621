"""Health of a model: `measured.py`, what it is judged by; `findings.py`; `report.py`."""

from mue.evaluation.health.findings import Finding
from mue.evaluation.health.measured import CodeHealth, Measuring, Spread
from mue.evaluation.health.report import INPUTS, HealthReport, health

__all__ = ["INPUTS", "CodeHealth", "Finding", "HealthReport", "Measuring", "Spread", "health"]
