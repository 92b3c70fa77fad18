//! What the finder makes of whole recordings.
