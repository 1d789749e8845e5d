//! Tests of WebRTC without a browser.
