"""First-fit decreasing as two loops."""


def first_fit_decreasing(lengths: list[int], max_len: int) -> list[list[int]]:
    """Per bin the list of sequence indices, in the order of placement."""
    bins: list[list[int]] = []
    room: list[int] = []
    for index in sorted(range(len(lengths)), key=lambda i: (-lengths[i], i)):
        for bin_index, left in enumerate(room):
            if left >= lengths[index]:
                bins[bin_index].append(index)
                room[bin_index] -= lengths[index]
                break
        else:
            bins.append([index])
            room.append(max_len - lengths[index])
    return bins
