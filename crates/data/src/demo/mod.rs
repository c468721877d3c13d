//! The built-in demo corpus: a formant synthesiser that reads sentences aloud.
