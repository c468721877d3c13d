//! Token ids from cleaned text; vocabularies trained, extended and reported on.
