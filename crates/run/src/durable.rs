//! Files that survive `kill -9`: written beside, synced, renamed, folder synced.
