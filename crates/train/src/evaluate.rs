//! How near what was spoken is to what should have been.
