//! MIG geometry: which GPU instances a GPU model offers, where they may start, and which sets of them fit together.
//!
//! A GPU is an axis of memory slices. Every instance occupies a window of that axis, and a profile may begin only at
//! the starts that the driver lists for it. Counting free slices is therefore not enough: `1g` at 0 and `1g` at 4
//! leave six of eight slices free on an A100 and still block every `3g`.
//!
//! ```text
//!   A100 memory slices   0   1   2   3   4   5   6   7
//!   1g.5gb               *   *   *   *   *   *   *        (7 alone is never usable by a 1g)
//!   1g.10gb, 2g.10gb     *-------*-------*-------*        (2g never at 6)
//!   3g.20gb              *---------------*
//!   4g.20gb              *---------------
//!   7g.40gb              *-------------------------------
//! ```
//!
//! Invariant: nothing here reads a clock, a file or the network, and every result is a function of the static tables
//! in [`tables`] and of the arguments. The layouts of a model are few (722 placed sets on an eight-slice GPU), so they
//! are enumerated and looked up instead of being approximated.

pub mod geometry;
pub mod layout;
pub mod lookup;
pub mod node_layout;
pub mod parted;
pub mod placement;
pub mod profile;
pub mod step;
pub mod tables;

pub use geometry::{Confidence, GpuModel, ProfileGeometry, ProfileIndex, UnknownModel, UnknownProfile};
pub use layout::{Counts, Layout, LayoutError, LayoutTable, Variants, enumerate_layouts, find_layout};
pub use lookup::OccupancyTable;
pub use node_layout::{NodeLayout, NodeLayoutError};
pub use placement::{Placement, PlacementError, Slots};
pub use profile::{Attribute, ParseProfileError, ProfileName, RESOURCE_PREFIX};
pub use step::Step;
