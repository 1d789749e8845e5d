//! `clockwise user`.

use std::io::{self, BufRead, IsTerminal, Write};
use std::process::ExitCode;

use clap::Subcommand;
use media::rtsp::access::{AccessRight, Grant};
use rustix::termios::{LocalModes, OptionalActions, tcgetattr, tcsetattr};
use sched::units::Nanos;

use super::{block_on, name_in_path};
use crate::client::ApiClient;
use crate::failure::{Failure, host_failure};
use crate::local_time::rfc3339;
use crate::print::{Output, table};
use crate::quantity::parse_time;
use crate::text::printable;
use crate::wire::users::{AddUser, ChangeUser, MadeToken, MakeToken, UserView};

/// Characters of passwords that the command makes: none that look like another one.
const PASSWORD_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";

/// The characters of such a password, 5 bits each.
const PASSWORD_CHARS: usize = 20;

/// `clockwise user`.
#[derive(Subcommand, Debug)]
pub enum UserCommand {
    /// List the users, their rights and their tokens.
    List,
    /// Add a user. The password is read from standard input.
    Add {
        /// The name.
        name: String,
        #[command(flatten)]
        rights: RightArgs,
        #[command(flatten)]
        password: PasswordArgs,
        /// Store no password for RTSP, which needs one that is quick to test.
        #[arg(long)]
        no_rtsp: bool,
    },
    /// Give a user more rights.
    Grant {
        /// The name.
        name: String,
        #[command(flatten)]
        rights: RightArgs,
    },
    /// Take all rights from a user. The tokens have none then either.
    Withdraw {
        /// The name.
        name: String,
    },
    /// Change a password, which is read from standard input.
    Password {
        /// The user's name.
        name: String,
        #[command(flatten)]
        password: PasswordArgs,
    },
    /// Remove a user, with the tokens.
    Remove {
        /// The name.
        name: String,
    },
    /// Make a token, with which a program has the rights of a user, and print it.
    Token {
        /// The user's name.
        name: String,
        /// The name of the token.
        token: String,
        /// How long it is valid, such as 90d; always by default.
        #[arg(long, value_parser = parse_time, value_name = "TIME", allow_hyphen_values = true)]
        expires: Option<Nanos>,
    },
    /// Revoke a token.
    Revoke {
        /// The user's name.
        name: String,
        /// The name of the token.
        token: String,
    },
}

/// Rights in volumes.
#[derive(clap::Args, Debug)]
pub struct RightArgs {
    /// The rights: live, recordings, export, record, change, administer, separated by commas; play is the
    /// first three.
    #[arg(long, value_delimiter = ',', required = true, value_name = "RIGHT", value_parser = parse_rights)]
    may: Vec<Rights>,
    /// A volume to which that applies; repeat it for more. By default all.
    #[arg(long = "volume", value_name = "VOLUME")]
    volumes: Vec<String>,
}

/// The rights of a word.
#[derive(Clone, Debug)]
struct Rights(Vec<AccessRight>);

fn parse_rights(word: &str) -> Result<Rights, String> {
    let rights = AccessRight::of_word(word);
    rights.map(Rights).ok_or_else(|| {
        let words = AccessRight::ALL.map(AccessRight::word).join(", ");
        format!("the rights are {words}, and play")
    })
}

impl RightArgs {
    fn grant(&self) -> Grant {
        let may = self.may.iter().flat_map(|of| of.0.iter().copied());
        Grant {
            may: may.collect(),
            volumes: (!self.volumes.is_empty()).then(|| self.volumes.clone()),
        }
    }
}

/// Where a password comes from.
#[derive(clap::Args, Debug)]
pub struct PasswordArgs {
    /// Make a random password, and print it.
    #[arg(long)]
    generate: bool,
}

impl PasswordArgs {
    /// The password, and true if it is to be printed.
    fn password(&self) -> Result<String, Failure> {
        if self.generate {
            return generated();
        }
        let stdin = io::stdin();
        if !stdin.is_terminal() {
            return line(&mut stdin.lock());
        }
        let first = asked("Password: ")?;
        match asked("Password again: ")? == first {
            true => Ok(first),
            false => {
                Err(Failure::bad_input("the two passwords are not the same")
                    .help("repeat the command"))
            }
        }
    }
}

/// A random password.
fn generated() -> Result<String, Failure> {
    let mut bytes = [0; PASSWORD_CHARS];
    rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())
        .map_err(|error| host_failure("make a random password", &error.into()))?;
    let letter = |byte: &u8| char::from(PASSWORD_ALPHABET[usize::from(byte % 32)]);
    Ok(bytes.iter().map(letter).collect())
}

/// The next line, without its end.
fn line(from: &mut impl BufRead) -> Result<String, Failure> {
    let mut text = String::new();
    from.read_line(&mut text)
        .map_err(|error| host_failure("read the password from standard input", &error))?;
    let text = text.trim_end_matches(['\r', '\n']);
    match text.is_empty() {
        true => Err(Failure::bad_input("standard input has no password")
            .help("write it to standard input, or add --generate")),
        false => Ok(text.to_owned()),
    }
}

/// Asks on the terminal, which does not show the answer.
fn asked(question: &str) -> Result<String, Failure> {
    let failed = |error: io::Error| host_failure("ask for the password", &error);
    let stdin = io::stdin();
    io::stderr()
        .write_all(question.as_bytes())
        .map_err(failed)?;
    let shown = tcgetattr(&stdin).map_err(|error| failed(error.into()))?;
    let mut hidden = shown.clone();
    hidden.local_modes.remove(LocalModes::ECHO);
    tcsetattr(&stdin, OptionalActions::Now, &hidden).map_err(|error| failed(error.into()))?;
    let answer = line(&mut stdin.lock());
    // The terminal must show what is typed again, whatever came.
    let restored = tcsetattr(&stdin, OptionalActions::Now, &shown);
    io::stderr().write_all(b"\n").map_err(failed)?;
    restored.map_err(|error| failed(error.into()))?;
    answer
}

fn part(name: &str) -> Result<String, Failure> {
    name_in_path(name).ok_or_else(|| {
        Failure::bad_input("a name is empty").help("`clockwise user list` lists users and tokens")
    })
}

fn path(name: &str) -> Result<String, Failure> {
    Ok(format!("/v1/users/{}", part(name)?))
}

pub(super) fn run(
    client: &ApiClient,
    command: &UserCommand,
    output: &Output,
) -> Result<ExitCode, Failure> {
    match command {
        UserCommand::List => {
            let users: Vec<UserView> = block_on(client.get("/v1/users"))?;
            output.result(&users, || users_text(&users))?;
        }
        UserCommand::Add {
            name,
            rights,
            password,
            no_rtsp,
        } => {
            let text = password.password()?;
            let ask = AddUser {
                name: name.clone(),
                password: text.clone(),
                rtsp: !no_rtsp,
                grants: vec![rights.grant()],
            };
            let added: UserView = block_on(client.post("/v1/users", &ask))?;
            changed(&added, password.generate.then_some(&text), output)?;
        }
        UserCommand::Grant { name, rights } => {
            let ask = ChangeUser {
                added_grants: vec![rights.grant()],
                ..ChangeUser::default()
            };
            changed(&block_on(client.patch(&path(name)?, &ask))?, None, output)?;
        }
        UserCommand::Withdraw { name } => {
            let ask = ChangeUser {
                grants: Some(Vec::new()),
                ..ChangeUser::default()
            };
            changed(&block_on(client.patch(&path(name)?, &ask))?, None, output)?;
        }
        UserCommand::Password { name, password } => {
            let text = password.password()?;
            let ask = ChangeUser {
                password: Some(text.clone()),
                ..ChangeUser::default()
            };
            let user: UserView = block_on(client.patch(&path(name)?, &ask))?;
            changed(&user, password.generate.then_some(&text), output)?;
        }
        UserCommand::Remove { name } => {
            let removed: UserView = block_on(client.delete(&path(name)?))?;
            let name = printable(&removed.name);
            output.result(&removed, || format!("removed user {name}\n"))?;
        }
        UserCommand::Token {
            name,
            token,
            expires,
        } => {
            let ask = MakeToken {
                name: token.clone(),
                expires_in_s: expires.map(|of| of.get() / 1_000_000_000),
            };
            let made: MadeToken = block_on(client.post(&format!("{}/tokens", path(name)?), &ask))?;
            output.result(&made, || format!("{}\n", made.token))?;
        }
        UserCommand::Revoke { name, token } => {
            let token = part(token)?;
            let path = format!("{}/tokens/{token}", path(name)?);
            changed(&block_on(client.delete(&path))?, None, output)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a user, with a password that the command has made.
fn changed(user: &UserView, made: Option<&String>, output: &Output) -> Result<(), Failure> {
    let text = || {
        let text = users_text(std::slice::from_ref(user));
        match made {
            Some(password) => format!("{text}password: {password}\n"),
            None => text,
        }
    };
    match made {
        Some(password) => {
            let mut value = serde_json::json!(user);
            value["password"] = serde_json::json!(password);
            output.result(&value, text)
        }
        None => output.result(user, text),
    }
}

fn grants(of: &UserView) -> String {
    let grant = |grant: &Grant| {
        let may: Vec<&str> = grant.may.iter().map(|right| right.word()).collect();
        let place = match &grant.volumes {
            None => "all volumes".to_owned(),
            Some(volumes) => volumes.join(", "),
        };
        format!("{} in {place}", may.join(", "))
    };
    let all: Vec<String> = of.grants.iter().map(grant).collect();
    match all.is_empty() {
        true => "nothing".to_owned(),
        false => printable(&all.join("; ")).into_owned(),
    }
}

fn tokens(of: &UserView) -> String {
    let token = |token: &crate::wire::users::TokenView| match token.expires_unix_s {
        Some(at) => format!(
            "{} until {}",
            token.name,
            rfc3339(at.saturating_mul(1_000_000_000))
        ),
        None => token.name.clone(),
    };
    let all: Vec<String> = of.tokens.iter().map(token).collect();
    printable(&all.join(", ")).into_owned()
}

fn users_text(users: &[UserView]) -> String {
    if users.is_empty() {
        return "there are no users\n".to_owned();
    }
    let row = |of: &UserView| {
        [
            printable(&of.name).into_owned(),
            grants(of),
            if of.rtsp { "yes" } else { "no" }.to_owned(),
            tokens(of),
        ]
    };
    table(
        ["USER", "MAY", "RTSP", "TOKENS"],
        &[],
        users.iter().map(row),
    ) + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn made_passwords_differ_and_are_long_enough() {
        let (one, two) = (generated().unwrap(), generated().unwrap());
        assert_ne!(one, two);
        assert_eq!(one.len(), PASSWORD_CHARS);
    }

    #[test]
    fn password_is_the_first_line() {
        assert_eq!(
            line(&mut &b"secret words\r\nmore"[..]).unwrap(),
            "secret words"
        );
        assert!(line(&mut &b"\n"[..]).is_err());
        assert!(line(&mut &b""[..]).is_err());
    }
}
