"""Pure tensor functions: losses, weak labels, diagnostics, counter-based randomness."""
