"""The invariants, I1 to I12: each is a function from the evidence to what speaks against it."""
