//! A lower layer never names a higher one (ARCHITECTURE.md, "Layers").

use std::fs;
use std::path::{Path, PathBuf};

/// From the lowest to the highest; modules of one row may name each other.
const LAYERS: &[&[&str]] =
    &[&["syntax"], &["repo", "manifest", "job"], &["identity", "fetch", "firehose", "store", "consumer"], &["engine"], &["sim"], &["cli"]];

fn sources(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, into);
        } else if path.extension().is_some_and(|end| end == "rs") {
            into.push(path);
        }
    }
}

#[test]
fn no_module_names_one_of_a_higher_layer() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut checked = 0;
    for (height, layer) in LAYERS.iter().enumerate() {
        for module in *layer {
            let mut files = Vec::new();
            sources(&src.join(module), &mut files);
            assert!(!files.is_empty(), "the module {module} has no files");
            for file in files {
                let text = fs::read_to_string(&file).unwrap();
                for higher in LAYERS[height + 1..].iter().copied().flatten() {
                    let named = format!("crate::{higher}");
                    let at = text.lines().position(|line| line.contains(&named) && !line.trim_start().starts_with("//"));
                    assert!(at.is_none(), "{}:{} names {named}", file.display(), at.unwrap_or(0) + 1);
                }
                checked += 1;
            }
        }
    }
    let mut modules: Vec<String> = fs::read_dir(&src)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| entry.path().is_dir())
        .map(|entry| entry.file_name().into_string().unwrap())
        .collect();
    modules.sort();
    let mut known: Vec<&str> = LAYERS.iter().copied().flatten().copied().collect();
    known.sort_unstable();
    assert_eq!(modules, known, "a module is in no layer");
    assert!(checked > 50);
}
