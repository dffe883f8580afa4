"""Countries as data: one TOML file each, checked when it is loaded.

``ru.toml`` explains the keys and the patterns.
"""

from pathlib import Path

from plate_models.recognition.countries.definition import load_country

COUNTRIES = Path(__file__).resolve().parent

__all__ = ["COUNTRIES", "load_country"]
