//! `--shard 3/16`, or `--shard auto` in a Slurm array: the part of a corpus that this process prepares.

use myxtts_data::cache::Part;

use crate::failure::UsageError;

/// Parses `--shard`. For `auto` it also returns a line that says how the part was found.
pub fn part_of(
    argument: &str,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(Part, Option<String>), UsageError> {
    if argument != "auto" {
        return argument
            .parse()
            .map(|part| (part, None))
            .map_err(|error| UsageError(format!("--shard: {error}")));
    }
    let number = |name: &str| -> Result<Option<u32>, UsageError> {
        let Some(text) = variable(name) else { return Ok(None) };
        let wrong =
            || UsageError(format!("--shard auto: {name}={text} is not a number: give --shard 3/16 instead"));
        text.trim().parse().map(Some).map_err(|_| wrong())
    };
    let Some(id) = number("SLURM_ARRAY_TASK_ID")? else {
        return Err(UsageError(
            "--shard auto reads SLURM_ARRAY_TASK_ID, which is not set: submit an array (`sbatch --array=1-16`), or give \
             --shard 3/16"
                .into(),
        ));
    };
    let first = number("SLURM_ARRAY_TASK_MIN")?.unwrap_or(1);
    let last = number("SLURM_ARRAY_TASK_MAX")?;
    let step = number("SLURM_ARRAY_TASK_STEP")?.unwrap_or(1).max(1);
    let count = match (number("SLURM_ARRAY_TASK_COUNT")?, last) {
        (Some(count), _) => count,
        (None, Some(last)) => last.saturating_sub(first) / step + 1,
        (None, None) => {
            return Err(UsageError(
                "--shard auto needs SLURM_ARRAY_TASK_COUNT, which is not set: give --shard 3/16 instead"
                    .into(),
            ));
        }
    };
    // `--array=1,5,7` has no constant step, so the position of task 5 is unknown.
    let even = last.is_none_or(|last| {
        u64::from(first) + u64::from(step) * u64::from(count.max(1) - 1) == u64::from(last)
    });
    let at = id.checked_sub(first).filter(|at| at.is_multiple_of(step)).map(|at| at / step);
    let part = at.filter(|_| even).and_then(|at| Part::new(at.checked_add(1)?, count).ok());
    let part = part.ok_or_else(|| {
        UsageError(format!(
            "--shard auto cannot determine the position of task {id} among {count}: submit them as one range, such as \
             --array=1-{count}, or give --shard 3/16"
        ))
    })?;
    Ok((
        part,
        Some(format!("shard {part}: task {id} of Slurm array {first}-{}", last.unwrap_or(first + count - 1))),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn auto(variables: &[(&str, &str)]) -> Result<String, String> {
        let get = |name: &str| {
            let found = variables.iter().find(|(key, _)| format!("SLURM_ARRAY_TASK_{key}") == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        part_of("auto", get).map(|(part, _)| part.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn slurm_task_ids_are_counted_from_the_start_of_the_array() {
        let array = |id, min, max, count| auto(&[("ID", id), ("MIN", min), ("MAX", max), ("COUNT", count)]);
        assert_eq!(array("1", "1", "16", "16").unwrap(), "1/16");
        assert_eq!(array("0", "0", "15", "16").unwrap(), "1/16");
        assert_eq!(array("15", "0", "15", "16").unwrap(), "16/16");
        assert_eq!(
            auto(&[("ID", "7"), ("MIN", "1"), ("MAX", "7"), ("COUNT", "4"), ("STEP", "2")]).unwrap(),
            "4/4"
        );
        assert_eq!(auto(&[("ID", "3"), ("MIN", "1"), ("MAX", "8")]).unwrap(), "3/8");
    }

    #[test]
    fn unclear_shards_are_refused_with_a_reason() {
        let list =
            auto(&[("ID", "5"), ("MIN", "1"), ("MAX", "7"), ("COUNT", "3"), ("STEP", "1")]).unwrap_err();
        assert!(list.contains("--array=1-3"), "{list}");
        assert!(auto(&[]).unwrap_err().contains("SLURM_ARRAY_TASK_ID"));
        assert!(auto(&[("ID", "5")]).unwrap_err().contains("SLURM_ARRAY_TASK_COUNT"));
        assert!(auto(&[("ID", "x"), ("COUNT", "3")]).unwrap_err().contains("SLURM_ARRAY_TASK_ID=x"));
        assert!(auto(&[("ID", "9"), ("COUNT", "3"), ("MIN", "1")]).is_err());
        assert!(auto(&[("ID", "0"), ("COUNT", "3"), ("MIN", "1")]).is_err());
        let wrong = part_of("17/16", |_| None).unwrap_err().to_string();
        assert!(wrong.contains("17/16") && wrong.contains("from 1/16 to 16/16"), "{wrong}");
    }
}
