//! Pages as they come out, and what holds for all of them.

pub(crate) mod accounting;
mod advice;
pub(crate) mod beats;
pub(crate) mod changes;
mod golden;
pub(crate) mod grids;
pub(crate) mod incidents;
mod kernels;
mod knobs;
pub(crate) mod net;
pub(crate) mod pace;
pub(crate) mod properties;
pub(crate) mod samples;
pub(crate) mod screens;
mod sure;
mod ticks;
pub(crate) mod trials;
pub(crate) mod victims;

/// What a page calls an account.
pub(crate) fn name_of(account: &ticktax_model::statement::Account) -> String {
    super::account_name(account)
}
