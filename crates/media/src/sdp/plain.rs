//! Repair of descriptions that are no valid SDP, as some cameras and encoders write them.

/// A description reduced to media, attributes and valid rates, with valid ports. Cameras write origins (`o=`) and
/// addresses (`c=`) with too many or too few words, invalid ports and rates, no version, and text that is not
/// UTF-8.
pub(super) fn plain(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let mut plain = "v=0\r\ns=-\r\n".to_owned();
    for line in text.split('\n').map(str::trim_end) {
        let line = match line.split_once('=') {
            Some(("a", _)) => line.to_owned(),
            Some(("b", rate)) if is_rate(rate) => line.to_owned(),
            Some(("m", media)) => match media.split(' ').collect::<Vec<_>>()[..] {
                [media, port, ref rest @ ..]
                    if port.parse::<u16>().is_err() && !port.contains('/') =>
                {
                    format!("m={media} 0 {}", rest.join(" "))
                }
                _ => line.to_owned(),
            },
            _ => continue,
        };
        plain += &line;
        plain += "\r\n";
    }
    plain.into_bytes()
}

/// True if a bandwidth has a number.
fn is_rate(bandwidth: &str) -> bool {
    let said = bandwidth.split_once(':');
    said.is_some_and(|(_, rate)| rate.parse::<u64>().is_ok())
}
