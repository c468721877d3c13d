//! Every kind of problem, planted and found.
