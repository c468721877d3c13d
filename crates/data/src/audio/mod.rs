//! Sound files to mono samples: decoding, resampling, trimming, loudness.
