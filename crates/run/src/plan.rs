//! The resolved plan: what the configuration means on this machine.
