//! A voice: a model, a speaker heard once, and text made sound.
