import pytest
import torch

from sharpwave import primitives as sp
from sharpwave.primitives.packing import tensors as on_device
from sharpwave.primitives.packing.tensors import pack_tokens, plan_layout, unpack_tokens


def sequences(count: int, max_len: int) -> list[torch.Tensor]:
    lengths = torch.randint(0, max_len + 1, (count,)).tolist()
    return [torch.randint(1, 1000, (length,)) for length in lengths]


@pytest.mark.parametrize(("count", "max_len"), [(1, 4), (20, 17), (9, 1200)])
def test_packing_equals_that_on_the_host(count: int, max_len: int, device: torch.device) -> None:
    given = sequences(count, max_len)
    wanted = sp.pack_sequences(given, max_len, pad_id=-7)
    found = on_device.pack_sequences([x.to(device) for x in given], max_len, -7)
    for name, a, b in zip(wanted._fields, found, wanted, strict=True):
        assert torch.equal(a.cpu(), torch.as_tensor(b)), name
        assert a.dtype == torch.as_tensor(b).dtype, name


def test_unpacking_gives_the_tokens_back(device: torch.device) -> None:
    given = sequences(20, 17)
    tokens = torch.cat(given).to(device)
    layout = plan_layout([len(x) for x in given], 17, device)
    packed = pack_tokens(tokens, layout)
    assert torch.equal(unpack_tokens(packed.input_ids, layout), tokens)
    wide = packed.input_ids[:, :, None].expand(-1, -1, 3).float()
    assert torch.equal(unpack_tokens(wide, layout)[:, 2].long(), tokens)
    with pytest.raises(ValueError, match="tokens must have shape"):
        pack_tokens(tokens[1:], layout)
    with pytest.raises(ValueError, match="packed must have shape"):
        unpack_tokens(packed.input_ids[:, 1:], layout)


def test_gradients_go_back_through_unpacking(device: torch.device) -> None:
    layout = plan_layout([2, 3, 1], 4, device)
    given = torch.randn(layout.n_bins, 4, device=device, requires_grad=True)
    unpack_tokens(given, layout).square().sum().backward()
    is_token = torch.zeros(layout.n_bins * 4, dtype=torch.bool, device=device)
    is_token[layout.places] = True
    assert given.grad is not None
    assert torch.equal(given.grad, torch.where(is_token.view(-1, 4), 2 * given, 0.0))
