"""Networks as blocks of memory, without torch: their shapes, first weights and inputs.

Belongs here: shapes, offsets and first weights of blocks of parameters; no forward pass, no torch.
"""
