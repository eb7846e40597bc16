"""Pure functions of tensors: losses, weak labels, diagnostics, counter-based randomness."""
