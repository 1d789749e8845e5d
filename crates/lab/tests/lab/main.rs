//! Simulated and emulated drives, and experiments on them.

mod arms;
mod atlas;
mod beside;
mod channel;
mod emulator;
mod experiment;
mod farm;
mod guarantee;
mod host_bus;
mod linked;
mod measure;
mod predictor;
mod realtime;
mod runs;
mod traces;
mod tracks;
mod video;
mod worst_case;
