//! Where a process runs, in words by which another on the same machine can tell that it has ended.

/// A boot of a machine, a space of process ids in it, an id, and when that process began. Empty where the system does not say.
pub(super) fn place_of(pid: u32) -> String {
    here().zip(began(pid)).map_or_else(String::new, |(here, began)| format!("{here} {pid} {began}"))
}

/// Whether a process certainly runs no more. One on another machine may always do.
pub(super) fn has_ended(place: &str) -> bool {
    let Some((rest, began_then)) = place.rsplit_once(' ') else { return false };
    let Some((machine, pid)) = rest.rsplit_once(' ') else { return false };
    let Ok(pid) = pid.parse() else { return false };
    here().is_some_and(|here| here == machine) && began(pid).as_deref() != Some(began_then)
}

/// This boot, and this space of process ids.
fn here() -> Option<String> {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let space = std::fs::read_link("/proc/self/ns/pid").ok()?;
    Some(format!("{} {}", boot.trim(), space.display()))
}

/// When a process began, in ticks since the boot (proc(5), "starttime"); none if there is no such process, or it has ended and nobody has asked how.
fn began(pid: u32) -> Option<String> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may hold anything, blanks and brackets among it.
    let (_, fields) = status.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    if matches!(fields.next()?, "Z" | "X") {
        return None;
    }
    fields.nth(18).map(str::to_owned)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_has_ended_once_it_is_not_there_under_its_number_and_time() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let place = place_of(child.id());
        assert!(!place.is_empty() && !has_ended(&place) && !has_ended(&place_of(std::process::id())));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_ended(&place), "{place}");
        let me = place_of(std::process::id());
        let (rest, began) = me.rsplit_once(' ').unwrap();
        assert!(has_ended(&format!("{rest} {began}0")), "another process had the number before");
    }

    #[test]
    fn a_process_elsewhere_or_in_a_place_that_cannot_be_read_may_run() {
        for place in ["", "here", "1 2", "another-boot pid:[4026531836] 1 1", "another-boot pid:[4026531836] x 1"] {
            assert!(!has_ended(place), "{place}");
        }
    }
}
