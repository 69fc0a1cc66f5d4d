"""First-fit decreasing as two loops."""


def first_fit_decreasing(lengths, max_len):
    """Per bin the list of sequence indices, in the order of placement."""
    bins, room = [], []
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
