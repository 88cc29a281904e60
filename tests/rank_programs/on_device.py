"""Arrays on the device, for programs of ranks."""

import numpy as np
import numpy.typing as npt

from fake_arrays import InterfaceArray


def there(values: npt.ArrayLike, dtype: npt.DTypeLike = np.float32) -> InterfaceArray:
    """An array on the device."""
    return InterfaceArray(np.array(values, dtype))
