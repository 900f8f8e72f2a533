//! Weights that come back, and weights that must not.

use super::*;
use crate::forecast::train::tests::{learnable, quick};
use crate::forecast::{Forecaster, Windows, train};

/// Shape and bytes by name.
type Tensors = BTreeMap<String, (Vec<usize>, Vec<u8>)>;

fn model() -> Lstm {
    let windows = learnable(3, 500);
    train::train(&windows, &quick(), &mut |_| std::ops::ControlFlow::Continue(())).unwrap()
}

fn load(saved: &Saved) -> Result<Lstm, LoadError> {
    Lstm::load(saved, Shape::default(), Threads::One)
}

/// The header with some text replaced.
fn header(saved: &Saved, from: &str, to: &str) -> Saved {
    assert!(saved.header.contains(from), "{from} is not in {}", saved.header);
    Saved { header: saved.header.replacen(from, to, 1), ..saved.clone() }
}

/// Other numbers under a header that vouches for them.
fn numbers_of(saved: &Saved, weights: Vec<u8>) -> Saved {
    let header = saved.header.replace(&sha256(&saved.weights), &sha256(&weights));
    Saved { header, weights }
}

#[test]
fn a_model_comes_back_as_it_was() {
    let model = model();
    let saved = model.save().unwrap();
    let again = load(&saved).unwrap();
    assert_eq!(again.save().unwrap(), saved);
    let windows = Windows::new(Shape::default(), (0..60).map(|at| at as f32 / 60.0).collect(), vec![0, 60]);
    let windows = windows.unwrap();
    assert_eq!(again.forecast(&windows).unwrap(), model.forecast(&windows).unwrap());
    // Both fit into a ConfigMap, which holds 1 MiB, several times over.
    assert!(saved.header.len() + saved.weights.len() < 160_000, "{}", saved.weights.len());
}

#[test]
fn what_is_not_sound_is_refused() {
    let saved = model().save().unwrap();
    let refused = |saved: &Saved, part: &str| {
        let error = load(saved).unwrap_err().to_string();
        assert!(error.contains(part) && error.contains("mig-scheduler forecast train"), "{error}");
    };
    refused(&Saved { header: String::new(), ..saved.clone() }, "lstm.json: not the header of a model");
    refused(&header(&saved, "\"schema\": 1", "\"schema\": 2"), "schema is 2; this version reads 1");
    refused(&header(&saved, "\"model\": \"lstm\"", "\"model\": \"gru\""), "model is \"gru\"");
    refused(
        &header(&saved, "\"lookBack\": 30", "\"lookBack\": 60"),
        "60 -> 10 steps of 60 s; the configuration",
    );
    refused(&header(&saved, "\"lookBack\": 30", "\"lookBack\": -1"), "lookBack: invalid value");
    refused(&header(&saved, "\"horizon\"", "\"horizont\""), "horizont: unknown field");
    refused(&header(&saved, "min-max", "z-score"), "features are [\"centred\", \"z-score\"");
    refused(
        &header(&saved, "\"hidden\": 50", "\"hidden\": 64"),
        "2 layers of 64 cells; this version has 2 of 50",
    );
    refused(&header(&saved, "0.1", "0.2"), "quantiles are [0.2");
    let cut = Saved { weights: saved.weights[..saved.weights.len() - 9].to_vec(), ..saved.clone() };
    refused(&cut, "lstm.safetensors: its SHA-256 is");
    refused(&numbers_of(&saved, cut.weights), "not a safetensors file");
    refused(&numbers_of(&saved, Vec::new()), "not a safetensors file");
    let mut scaler = saved.clone();
    scaler.header = saved.header.replace("\"unit\": ", "\"unit\": -");
    refused(&scaler, "scaler.groups.load: min must not exceed max, and unit must be positive");
}

#[test]
fn foreign_and_broken_numbers_are_refused() {
    let saved = model().save().unwrap();
    let refused = |change: &dyn Fn(&mut Tensors), part: &str| {
        let read = SafeTensors::deserialize(&saved.weights).unwrap();
        let of = |(name, view): (&str, TensorView<'_>)| {
            (name.to_owned(), (view.shape().to_vec(), view.data().to_vec()))
        };
        let mut tensors: Tensors = read.iter().map(of).collect();
        change(&mut tensors);
        let views = tensors.iter().map(|(name, (shape, bytes))| {
            (name.as_str(), TensorView::new(Dtype::F32, shape.clone(), bytes).unwrap())
        });
        let saved = numbers_of(&saved, safetensors::serialize(views, None).unwrap());
        let error = load(&saved).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    refused(&|tensors| drop(tensors.remove("head.bias")), "has no tensor head.bias");
    refused(
        &|tensors| drop(tensors.insert("gru.weight".to_owned(), (vec![1], vec![0; 4]))),
        "holds a tensor gru.weight that this version does not know",
    );
    refused(
        &|tensors| drop(tensors.insert("head.bias".to_owned(), (vec![41], vec![0; 164]))),
        "tensor head.bias is F32 of [41]; F32 of [40] belongs there",
    );
    refused(
        &|tensors| {
            let values = &mut tensors.get_mut("lstm.weight_hh_l1").unwrap().1;
            values[40..44].copy_from_slice(&f32::NAN.to_le_bytes());
        },
        "tensor lstm.weight_hh_l1 holds NaN at position 10",
    );
}

#[test]
fn a_flipped_bit_is_noticed() {
    let saved = model().save().unwrap();
    for at in (0..saved.weights.len()).step_by(997) {
        let mut flipped = saved.clone();
        flipped.weights[at] ^= 4;
        assert!(load(&flipped).unwrap_err().problem.contains("SHA-256"), "byte {at}");
    }
}

/// Tests that the files in `weights/` belong together, fit the default windows, and are what the model card describes.
#[test]
fn what_the_program_brings_along_is_as_its_card_says() {
    let saved = Saved::brought_along();
    let model = load(&saved).unwrap();
    assert_eq!(saved.sums(), include_str!("../../../weights/SHA256SUMS"));
    let (training, card) = (model.training(), include_str!("../../../weights/README.md"));
    assert!(card.contains(&training.data_sha256), "another training than that of the card");
    let mse = training.mse;
    for figure in [mse.lstm, mse.linear, mse.persistence] {
        assert!(card.contains(&format!("{figure:.3} for")), "{figure}");
    }
    assert!(mse.lstm < mse.linear && mse.linear < mse.persistence && training.updates == 0);
}
