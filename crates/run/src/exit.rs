//! The exit codes of the program: few, documented, and the same for every command.

use std::process::ExitCode;

/// How a command ended, as the shell sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Everything was done.
    Done = 0,
    /// The command line or the configuration is wrong.
    Usage = 2,
    /// The data is worse than the failure budget allows.
    BadData = 65,
    /// A defect of ours.
    Internal = 70,
    /// Reading or writing failed: disk full, no permission, device gone.
    Io = 74,
    /// Another process or machine of the run is gone: to be tried again, from the last checkpoint (`EX_TEMPFAIL`).
    Retry = 75,
    /// Stopped by a signal, cleanly.
    Stopped = 143,
}

impl Exit {
    /// The meaning of a number, where it is one of ours.
    pub fn from_code(code: u8) -> Option<Exit> {
        let all =
            [Exit::Done, Exit::Usage, Exit::BadData, Exit::Internal, Exit::Io, Exit::Retry, Exit::Stopped];
        all.into_iter().find(|exit| exit.code() == code)
    }

    /// The number that the shell sees.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}
