//! A tuning's result folder, which is identified by the files that were given for the tuning.

use std::fs;
use std::path::{Path, PathBuf};

use crate::plan::Plan;
use crate::store::{Place, Store, StoreError, durable, refuse_strangers};

/// The folder of a tuning's result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TuningFolder {
    folder: PathBuf,
}

impl TuningFolder {
    /// Creates the folder, or opens the existing one of the same tuning. `given` are the files that identify the
    /// tuning, with their texts, the plan first.
    ///
    /// # Errors
    /// If the folder holds a tuning of other files or something else, if others can put files into it, or if it cannot be
    /// written.
    pub fn open(folder: &Path, given: &[(&str, &str)]) -> Result<Self, StoreError> {
        let of_this = Self { folder: folder.to_owned() };
        let place = Place::open(folder)?;
        refuse_others(folder, &place.path, given)?;
        for (name, text) in given.iter().rev() {
            of_this.put(name, text)?;
        }
        Ok(of_this)
    }

    /// Checks that [`Self::open`] would not refuse the folder, without making it.
    ///
    /// # Errors
    /// If the folder holds a tuning of other files or something else, or if others can put files into it.
    pub fn check(folder: &Path, given: &[(&str, &str)]) -> Result<(), StoreError> {
        match Place::existing(folder)? {
            Some(place) => refuse_others(folder, &place.path, given),
            None => Ok(()),
        }
    }

    /// Writes a file completely or not at all.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn put(&self, name: &str, text: &str) -> Result<(), StoreError> {
        durable::write(&Place::open(&self.folder)?.path.join(name), text.as_bytes())
    }

    /// The folder of a step's study.
    #[must_use]
    pub fn step(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// Opens the folder of a step's study, as [`Store::open`] does. Its plan follows from the changes that were kept
    /// before it. If it is not that of an earlier session, because a step that had failed has succeeded since, the
    /// earlier study is moved aside.
    ///
    /// # Errors
    /// Those of [`Store::open`], or if the folder cannot be moved.
    pub fn open_step(
        &self,
        name: &str,
        study: &Plan,
        text: &str,
        target: &str,
        seed: u64,
    ) -> Result<Store, StoreError> {
        let folder = self.step(name);
        let opened = Store::open(&folder, study, text, target, seed);
        let Err(StoreError::OtherPlan { .. }) = opened else { return opened };
        let place = Place::open(&self.folder)?;
        let mut numbered = (1..).map(|number: u32| format!("{name}.{number}"));
        let is_free = |name: &String| place.path.join(name).symlink_metadata().is_err();
        let aside = numbered.find(is_free).unwrap_or_default();
        let moved = fs::rename(place.path.join(name), place.path.join(&aside));
        moved.map_err(StoreError::file("Could not move", &folder))?;
        tracing::warn!(
            "{} was made after other changes: it is made again, and the earlier study is now {}",
            folder.display(),
            self.step(&aside).display()
        );
        Store::open(&folder, study, text, target, seed)
    }
}

/// Refuses a folder, reached by `path`, that holds a tuning of other files or something else.
fn refuse_others(folder: &Path, path: &Path, given: &[(&str, &str)]) -> Result<(), StoreError> {
    let known = given.first().is_some_and(|(name, _)| path.join(name).is_file());
    if !known {
        return refuse_strangers(folder, &given.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    }
    // Missing files are not a difference: the writer may have been stopped before it wrote all of them, and no
    // step was made before that.
    let differs =
        |(name, text): &&(&str, &str)| fs::read_to_string(path.join(name)).is_ok_and(|known| known != *text);
    let fields: Vec<String> = given.iter().filter(differs).map(|(name, _)| (*name).to_owned()).collect();
    if fields.is_empty() { Ok(()) } else { Err(StoreError::OtherPlan { folder: folder.to_owned(), fields }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_files_open_it_again_and_others_do_not() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("result");
        let open = |plan: &str, definition: &str| {
            TuningFolder::open(&folder, &[("plan.toml", plan), ("definition", definition)])
        };
        open("one", "xml").unwrap().put("tuning.json", "{}").unwrap();
        open("one", "xml").unwrap();
        let other = open("one", "other").unwrap_err().to_string();
        assert!(other.contains("which differs in: definition."), "{other}");
        assert!(open("two", "xml").is_err());
        assert_eq!(fs::read_to_string(folder.join("definition")).unwrap(), "xml");
    }

    #[test]
    fn a_step_that_follows_other_changes_is_measured_anew() {
        let place = tempfile::tempdir().unwrap();
        let tuning = TuningFolder::open(place.path(), &[("plan.toml", "one")]).unwrap();
        let text = include_str!("../plan/small.toml");
        let open = |text: &str| {
            let plan = Plan::read(text, "small.toml").unwrap();
            let mut store = tuning.open_step("steps/2-x", &plan, text, "local", 5).unwrap();
            store.begin(&host::Fingerprint::default(), None, false).unwrap();
        };
        let other = text.replace("repeats = 2", "repeats = 3");
        for text in [text, text, &other, text] {
            open(text);
        }
        let text_in = |name: &str| fs::read_to_string(place.path().join(name).join("plan.toml")).unwrap();
        assert_eq!(["steps/2-x.1", "steps/2-x.2", "steps/2-x"].map(text_in), [text, &other, text]);
        assert!(!place.path().join("steps/2-x.3").exists());
    }

    #[test]
    fn a_folder_with_something_else_is_left_alone() {
        let place = tempfile::tempdir().unwrap();
        fs::write(place.path().join("letter.txt"), "").unwrap();
        let refused = TuningFolder::open(place.path(), &[("plan.toml", "one")]).unwrap_err();
        assert!(refused.is_usage() && refused.to_string().contains("letter.txt"), "{refused}");
        assert!(!place.path().join("plan.toml").exists());
    }

    #[test]
    fn a_folder_of_others_is_refused_and_a_link_in_it_leads_nowhere() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let place = tempfile::tempdir().unwrap();
        let [folder, kept] = ["result", "kept"].map(|name| place.path().join(name));
        fs::write(&kept, "kept").unwrap();
        fs::create_dir(&folder).unwrap();
        symlink(&kept, folder.join(".writing-plan.toml")).unwrap();
        let mode = |mode| fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        mode(0o777);
        let open = || TuningFolder::open(&folder, &[("plan.toml", "one")]);
        let refused = open().unwrap_err().to_string();
        assert!(refused.contains("has mode 0777"), "{refused}");
        let check = |folder: &Path| TuningFolder::check(folder, &[("plan.toml", "one")]);
        assert_eq!(check(&folder).unwrap_err().to_string(), refused);
        check(&place.path().join("new")).unwrap();
        assert!(!folder.join("plan.toml").exists());
        mode(0o755);
        let opened = open().unwrap();
        assert_eq!(fs::read_to_string(&kept).unwrap(), "kept");
        mode(0o777);
        assert!(matches!(opened.put("tuning.json", "{}"), Err(StoreError::Place(_))));
    }
}
