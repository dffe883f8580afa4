"""What is done with photos and crops, where they lie: `host.OnHost` or `device.OnDevice`.

Nothing on the way of a photo imports torch unless its pixels are a tensor: in a process that
serves on the CPU it would be 200 MB, and its operators take longer to begin than most of this
work to end.
"""

from typing import Any

import numpy as np

from plate_models.pixels.host import OnHost


def where(array: Any) -> type[OnHost]:
    """The operations for where an array lies."""
    if isinstance(array, np.ndarray):
        return OnHost
    from plate_models.pixels.device import OnDevice

    return OnDevice
