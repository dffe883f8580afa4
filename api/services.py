"""The old name of `api.dependencies`."""

from api.dependencies import Services as Services
from api.dependencies import ServicesOfApp as ServicesOfApp
