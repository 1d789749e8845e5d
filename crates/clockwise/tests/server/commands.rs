//! The commands that there are, as the program itself knows them.

use clap::CommandFactory;

/// A command that people are shown: all of its words, and its own long options.
pub(crate) struct Described {
    pub(crate) name: String,
    pub(crate) options: Vec<String>,
}

/// All commands, those within others included.
pub(crate) fn commands() -> Vec<Described> {
    fn walk(command: &clap::Command, before: &str, found: &mut Vec<Described>) {
        let name = format!("{before}{}", command.get_name());
        let options = command.get_arguments().filter(|one| !one.is_global_set());
        let within = command.get_subcommands().filter(|one| !one.is_hide_set());
        for command in within {
            walk(command, &format!("{name} "), found);
        }
        let options = options.filter_map(|one| one.get_long()).map(str::to_owned);
        found.push(Described {
            options: options.collect(),
            name,
        });
    }
    let mut found = Vec::new();
    walk(&clockwise::cmd::Cli::command(), "", &mut found);
    assert!(found.len() > 20, "{}", found.len());
    found
}
