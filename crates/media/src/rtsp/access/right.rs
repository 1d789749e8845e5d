//! Rights of users.

use serde::{Deserialize, Serialize};

/// A right of a user in a volume.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize, utoipa::ToSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum AccessRight {
    /// To watch what arrives now.
    Live,
    /// To play recordings.
    Recordings,
    /// To take recordings away as files.
    Export,
    /// To record.
    Record,
    /// To delete and lock recordings, and to set how long they are kept.
    Change,
    /// Everything. In all volumes, it includes the control API.
    Administer,
}

impl AccessRight {
    /// All rights.
    pub const ALL: [Self; 6] = [
        Self::Live,
        Self::Recordings,
        Self::Export,
        Self::Record,
        Self::Change,
        Self::Administer,
    ];

    /// The rights of a word of the configuration: `play` is the first three.
    #[must_use]
    pub fn of_word(word: &str) -> Option<Vec<Self>> {
        if word == "play" {
            return Some(vec![Self::Live, Self::Recordings, Self::Export]);
        }
        let of_word = Self::ALL.into_iter().find(|right| right.word() == word);
        of_word.map(|right| vec![right])
    }

    /// Its word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Live => "live",
            Self::Recordings => "recordings",
            Self::Export => "export",
            Self::Record => "record",
            Self::Change => "change",
            Self::Administer => "administer",
        }
    }

    /// The verb for a refusal, before the volume.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Live => "watch",
            Self::Recordings => "play",
            Self::Export => "export from",
            Self::Record => "record in",
            Self::Change => "change",
            Self::Administer => "administer",
        }
    }
}

/// Rights in some volumes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// The rights.
    pub may: Vec<AccessRight>,
    /// The volumes; all volumes when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volumes: Option<Vec<String>>,
}

impl Grant {
    /// True if it contains a right in a volume. Without a volume, the right is one in all volumes.
    #[must_use]
    pub fn allows(&self, right: AccessRight, volume: Option<&str>) -> bool {
        let is_right = self.may.contains(&right) || self.may.contains(&AccessRight::Administer);
        let is_there = match (&self.volumes, volume) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(names), Some(volume)) => names.iter().any(|name| name == volume),
        };
        is_right && is_there
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_and_serialized_names_are_the_same() {
        for right in AccessRight::ALL {
            assert_eq!(serde_json::json!(right), right.word());
            assert_eq!(AccessRight::of_word(right.word()), Some(vec![right]));
        }
        assert_eq!(AccessRight::of_word("play").unwrap().len(), 3);
        assert_eq!(AccessRight::of_word("Play"), None);
    }

    #[test]
    fn administer_includes_all_rights_of_its_volumes() {
        let grant = |may: &[AccessRight], volumes: Option<&[&str]>| Grant {
            may: may.to_vec(),
            volumes: volumes.map(|of| of.iter().map(|name| (*name).to_owned()).collect()),
        };
        let (play, all) = (AccessRight::Recordings, AccessRight::Administer);
        for (grant, right, volume, is_allowed) in [
            (grant(&[play], None), play, Some("v"), true),
            (grant(&[play], None), play, None, true),
            (grant(&[play], Some(&["w"])), play, Some("v"), false),
            (grant(&[play], Some(&["w"])), play, None, false),
            (grant(&[all], Some(&["v"])), play, Some("v"), true),
            (grant(&[all], Some(&["v"])), all, None, false),
            (grant(&[all], None), all, None, true),
            (grant(&[], None), play, Some("v"), false),
        ] {
            assert_eq!(
                grant.allows(right, volume),
                is_allowed,
                "{grant:?} {right:?} {volume:?}"
            );
        }
    }
}
