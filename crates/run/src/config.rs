//! Configuration as the user wrote it: YAML, environment, flags, each value with its origin.
