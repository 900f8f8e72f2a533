//! The four mixes of profiles that the literature on packing MIG instances measures by.

/// How often pods ask for each profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mix {
    /// Every profile equally often.
    Uniform,
    /// Mostly small: 5 % 7g, 10 % 4g, 10 % 3g, 20 % 2g, 25 % 1g.10gb, 30 % 1g.5gb.
    #[default]
    SkewSmall,
    /// Mostly big: 30 % 7g, 25 % 4g, 20 % 3g, 10 % 2g, 10 % 1g.10gb, 5 % 1g.5gb.
    SkewBig,
    /// Whole GPUs and small slices: 30 % 7g, 15 % 4g, 5 % 3g, 5 % 2g, 15 % 1g.10gb, 30 % 1g.5gb.
    Bimodal,
}

impl Mix {
    /// Its name on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Mix::Uniform => "uniform",
            Mix::SkewSmall => "skew-small",
            Mix::SkewBig => "skew-big",
            Mix::Bimodal => "bimodal",
        }
    }

    /// Weights of 7g, 4g, 3g, 2g, 1g with double memory and 1g.
    pub fn weights(self) -> [u64; 6] {
        match self {
            Mix::Uniform => [1; 6],
            Mix::SkewSmall => [5, 10, 10, 20, 25, 30],
            Mix::SkewBig => [30, 25, 20, 10, 10, 5],
            Mix::Bimodal => [30, 15, 5, 5, 15, 30],
        }
    }
}
