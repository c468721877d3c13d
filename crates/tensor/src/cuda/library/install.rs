//! Installation commands for missing libraries.

use super::{Library, NEWEST_MAJOR};

/// The command for a driver that supports this CUDA version; for the newest version if there is no driver.
pub(super) fn command(library: Library, driver: Option<u32>) -> String {
    let newest = driver.unwrap_or(NEWEST_MAJOR) >= 13;
    let package = match library {
        Library::Driver | Library::Nvml => {
            let os = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
            return driver_command(&os).to_owned();
        }
        Library::Nvrtc if newest => "nvidia-cuda-nvrtc",
        Library::Nvrtc => "nvidia-cuda-nvrtc-cu12",
        Library::CublasLt if newest => "nvidia-cublas",
        Library::CublasLt => "nvidia-cublas-cu12",
        Library::Nccl if newest => "nvidia-nccl-cu13",
        Library::Nccl => "nvidia-nccl-cu12",
        Library::Cupti if newest => "nvidia-cuda-cupti",
        Library::Cupti => "nvidia-cuda-cupti-cu12",
    };
    format!("pip install {package}")
}

/// Chosen by the distribution family in /etc/os-release.
fn driver_command(os_release: &str) -> &'static str {
    let value = |key: &str| {
        let line = os_release.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let family = format!("{} {}", value("ID"), value("ID_LIKE"));
    for id in family.split_whitespace() {
        return match id {
            "ubuntu" => "sudo ubuntu-drivers install",
            "debian" => "sudo apt install nvidia-driver (from the section non-free)",
            "fedora" => "sudo dnf install akmod-nvidia xorg-x11-drv-nvidia-cuda (from RPM Fusion)",
            "rhel" | "centos" => {
                "sudo dnf module install nvidia-driver:latest-dkms (from NVIDIA's repository)"
            }
            "arch" => "sudo pacman -S nvidia nvidia-utils",
            "suse" | "opensuse" => "sudo zypper install nvidia-open-driver-G06-signed-kmp-default",
            _ => continue,
        };
    }
    "NVIDIA's driver from your distribution's packages, or from NVIDIA"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_package_fits_the_driver() {
        assert_eq!(command(Library::CublasLt, Some(12)), "pip install nvidia-cublas-cu12");
        assert_eq!(command(Library::CublasLt, Some(13)), "pip install nvidia-cublas");
        assert_eq!(command(Library::Nvrtc, None), "pip install nvidia-cuda-nvrtc");
    }

    #[test]
    fn the_driver_command_depends_on_the_distribution() {
        assert_eq!(
            driver_command("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"),
            "sudo ubuntu-drivers install"
        );
        assert!(driver_command("NAME=Debian\nID=debian\n").starts_with("sudo apt install nvidia-driver"));
        assert!(driver_command("").contains("your distribution"));
    }
}
