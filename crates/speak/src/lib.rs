//! Text to sound: voices, decoding, long text, sound files.
