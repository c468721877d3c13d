//! Log-mel front-ends exactly as XTTS-v2 computes them.
