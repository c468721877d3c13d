//! The numpy array format: headers in and out.
