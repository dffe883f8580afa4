"""The old name of `api.request`."""

from api.request import Deadline as Deadline
from api.request import RequestContext as RequestContext
