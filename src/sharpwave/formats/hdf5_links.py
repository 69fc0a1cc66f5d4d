"""Datasets that lie in an HDF5 file itself: links to other files are refused.

A link may lead to another file, a dataset may keep its rows in one, and a virtual dataset is made
of the rows of others. A file of episodes that does so would hand over any file of this machine as
observations.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from sharpwave.core.optional import require
from sharpwave.errors import SharpwaveIOError

Origin = str | os.PathLike[str]


def datasets_inside(group: Any, origin: Origin) -> Iterator[tuple[str, Any]]:
    """The datasets below a group by their names, those of groups in it joined by `/`.

    Raises:
        SharpwaveIOError: Something lies in another file, or a group in itself.
    """
    h5py = require("h5py", extra="hdf5")
    waiting = [("", group)]
    seen = {_address(h5py, group)}
    while waiting:
        prefix, parent = waiting.pop()
        inner = []
        for name in parent:
            full = prefix + name
            check_link(parent, name, origin)
            item = parent[name]
            if isinstance(item, h5py.Group):
                address = _address(h5py, item)
                if address in seen:
                    raise SharpwaveIOError(f"{origin}: group {full!r} is linked more than once")
                seen.add(address)
                inner.append((full + "/", item))
            elif isinstance(item, h5py.Dataset):
                _check_storage(item, full, origin)
                yield full, item
        waiting += reversed(inner)


def check_links(group: Any, origin: Origin) -> None:
    """Refuse links of a group that lead out of the file; what they lead to is not opened.

    Raises:
        SharpwaveIOError: One does.
    """
    for name in group:
        check_link(group, name, origin)


def check_link(group: Any, name: str, origin: Origin) -> None:
    """Refuse a link that leads out of the file.

    Raises:
        SharpwaveIOError: It does.
    """
    links = require("h5py", extra="hdf5").h5l
    # By its bytes: a name need not be UTF-8.
    kind = group.id.links.get_info(os.fsencode(name)).type
    if kind not in (links.TYPE_HARD, links.TYPE_SOFT):
        raise SharpwaveIOError(f"{origin}: {name!r} is a link to another file, which is not opened")


def _check_storage(dataset: Any, name: str, origin: Origin) -> None:
    if dataset.is_virtual:
        raise SharpwaveIOError(
            f"{origin}: dataset {name!r} is made of other datasets, which are not opened"
        )
    if dataset.external:
        raise SharpwaveIOError(
            f"{origin}: dataset {name!r} lies in another file, which is not opened"
        )


def _address(h5py: Any, group: Any) -> tuple[int, int]:
    info = h5py.h5o.get_info(group.id)
    return int(info.fileno), int(info.addr)
