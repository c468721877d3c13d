//! Exit codes of the program, the same for every command.

use std::process::ExitCode;

/// Exit code of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Success.
    Done = 0,
    /// The command line or the configuration is invalid, or a device, library or memory is missing.
    Usage = 2,
    /// More of the data is invalid than the failure budget allows, or files are damaged.
    BadData = 65,
    /// A bug in this program, or a failed GPU call.
    Internal = 70,
    /// Reading or writing failed: disk full, no permission, device gone.
    Io = 74,
    /// Another process or machine of the run failed; retry from the last checkpoint (`EX_TEMPFAIL`).
    Retry = 75,
    /// Stopped cleanly by a signal.
    Stopped = 143,
}

impl Exit {
    /// Converts a numeric code; `None` if the program does not use it.
    pub fn from_code(code: u8) -> Option<Exit> {
        let all =
            [Exit::Done, Exit::Usage, Exit::BadData, Exit::Internal, Exit::Io, Exit::Retry, Exit::Stopped];
        all.into_iter().find(|exit| exit.code() == code)
    }

    /// The numeric code.
    pub fn code(self) -> u8 {
        self as u8
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}
