//! Whose a DCGM series is, by the labels of whichever exporter and scrape configuration wrote it.
//!
//! | what | labels, the first that is there |
//! |---|---|
//! | GPU | `UUID`, `uuid`; else node and `gpu` |
//! | MIG instance | `GPU_I_ID` with `GPU_I_PROFILE` |
//! | node | `node`, `Hostname`, `hostname`, the host in `instance` |
//! | model | `modelName`, `modelname` |
//! | pod | `exported_pod` with `exported_namespace`, else `pod`, `pod_name` with theirs |
//!
//! With Prometheus' own default (`honor_labels: false`) the exporter's `pod` becomes `exported_pod` and `pod` is the exporter
//! itself; where one series of an answer has the former, `pod` says nothing about the workload in any of them.

use std::sync::Arc;

use super::answer::{Labels, Vector};
use crate::mig::{GpuModel, ProfileName};

/// A GPU or a MIG instance on it. An id may denote another profile after a layout change, so the profile is part of it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Device {
    /// The GPU's UUID, or `node/index` where the exporter does not say it.
    pub gpu: Arc<str>,
    /// None for the GPU as a whole.
    pub instance: Option<Instance>,
}

/// A MIG instance on a GPU.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instance {
    /// `GPU_I_ID`.
    pub id: Arc<str>,
    /// `GPU_I_PROFILE` as it stands.
    pub profile: Arc<str>,
}

/// What a device's labels say besides.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct About {
    /// The node it is in.
    pub node: Arc<str>,
    /// The model's name in NVML's words, `NVIDIA A100-SXM4-40GB`.
    pub model: Arc<str>,
    /// `namespace/name` of the pod that holds it.
    pub pod: Option<Arc<str>>,
}

/// Whether the exporter's own labels were renamed in this answer.
pub fn is_renamed(vectors: &[Vector]) -> bool {
    vectors.iter().any(|vector| label(&vector.labels, &["exported_pod"]).is_some())
}

/// The device of a series; `None` for a series that is no device's.
pub fn device(labels: &Labels, renamed: bool) -> Option<(Device, About)> {
    let node = node(labels);
    let gpu = match label(labels, &["UUID", "uuid"]) {
        Some(uuid) => uuid.into(),
        None => format!("{}/{}", node?, label(labels, &["gpu"])?).into(),
    };
    let instance = label(labels, &["GPU_I_ID"]).map(|id| Instance {
        id: id.into(),
        profile: label(labels, &["GPU_I_PROFILE"]).unwrap_or_default().into(),
    });
    let about = About {
        node: node.unwrap_or_default().into(),
        model: label(labels, &["modelName", "modelname"]).unwrap_or_default().into(),
        pod: pod(labels, renamed),
    };
    Some((Device { gpu, instance }, about))
}

fn node(labels: &Labels) -> Option<&str> {
    let host = || {
        let instance = label(labels, &["instance"])?;
        Some(instance.rsplit_once(':').map_or(instance, |(host, _)| host))
    };
    label(labels, &["node", "Hostname", "hostname"]).or_else(host)
}

fn pod(labels: &Labels, renamed: bool) -> Option<Arc<str>> {
    let (names, namespaces): (&[&str], &[&str]) = match renamed {
        true => (&["exported_pod"], &["exported_namespace"]),
        false => (&["pod", "pod_name"], &["namespace", "pod_namespace"]),
    };
    let name = label(labels, names)?;
    Some(format!("{}/{name}", label(labels, namespaces).unwrap_or_default()).into())
}

/// The first of the labels that is there and not empty.
fn label<'a>(labels: &'a Labels, names: &[&str]) -> Option<&'a str> {
    names.iter().filter_map(|name| labels.get(*name)).map(String::as_str).find(|value| !value.is_empty())
}

/// The model by NVML's name, which the geometry tables know with dashes.
pub fn model(name: &str) -> Option<&'static GpuModel> {
    GpuModel::by_product_label(&name.replace(' ', "-")).ok()
}

/// The multiprocessors of a whole GPU, as far as MIG instances can have them, or its compute slices where the tables do not
/// know the former. [`instance_weight`] is in the same unit.
pub fn gpu_weight(model: &GpuModel) -> f32 {
    let whole = model.profiles.iter().filter(|profile| profile.name.compute_slices() == model.compute_slices);
    match whole.clone().find_map(|profile| profile.sm) {
        Some(sm) => f32::from(sm),
        None => f32::from(model.compute_slices),
    }
}

/// The share of the GPU that an instance is, in the unit of [`gpu_weight`]; `None` for a profile that the model lacks.
pub fn instance_weight(model: &GpuModel, profile: &str) -> Option<f32> {
    let profile = model.profile(profile.parse::<ProfileName>().ok()?).ok()?;
    Some(match profile.sm {
        Some(sm) => f32::from(sm),
        None => f32::from(profile.name.compute_slices()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Labels as text, `name=value` each.
    pub fn labels(text: &str) -> Labels {
        let pair =
            |word: &str| word.split_once('=').map(|(name, value)| (name.to_owned(), value.replace('~', " ")));
        text.split_whitespace().filter_map(pair).collect()
    }

    #[track_caller]
    fn check(text: &str, renamed: bool, expected: &str) {
        let said = device(&labels(text), renamed).map_or("none".to_owned(), |(device, about)| {
            let instance = device.instance.map(|i| format!(":{}:{}", i.id, i.profile)).unwrap_or_default();
            let pod = about.pod.map(|pod| format!(" {pod}")).unwrap_or_default();
            format!("{}{instance} on {} ({}){pod}", device.gpu, about.node, about.model)
        });
        assert_eq!(said, expected, "{text}");
    }

    #[test]
    fn labels_of_all_times() {
        check(
            "gpu=0 UUID=GPU-1 modelName=NVIDIA~A100 Hostname=n0 GPU_I_ID=1 GPU_I_PROFILE=1g.5gb pod=p namespace=ns",
            false,
            "GPU-1:1:1g.5gb on n0 (NVIDIA A100) ns/p",
        );
        check(
            "UUID=GPU-1 hostname=n0 pod=exporter-x namespace=gpu exported_pod=p exported_namespace=ns",
            true,
            "GPU-1 on n0 () ns/p",
        );
        check("UUID=GPU-1 hostname=n0 pod=exporter-x namespace=gpu", true, "GPU-1 on n0 ()");
        check(
            "UUID=GPU-1 Hostname=exporter-x node=n0 pod_name=p pod_namespace=ns",
            false,
            "GPU-1 on n0 () ns/p",
        );
        check("gpu=3 instance=10.0.0.1:9400 GPU_I_ID= pod=", false, "10.0.0.1/3 on 10.0.0.1 ()");
        check("job=x", false, "none");
        check("gpu=3", false, "none");
    }

    #[test]
    fn weights_are_multiprocessors() {
        let a100 = model("NVIDIA A100-SXM4-40GB").unwrap();
        let of = |model, profile: &str| instance_weight(model, profile);
        assert_eq!(
            (gpu_weight(a100), of(a100, "1g.5gb"), of(a100, "3g.20gb")),
            (98.0, Some(14.0), Some(42.0))
        );
        let h100 = model("NVIDIA H100 80GB HBM3").unwrap();
        assert_eq!(
            (gpu_weight(h100), of(h100, "1g.20gb"), of(h100, "1g.10gb+me")),
            (132.0, Some(26.0), Some(16.0))
        );
        let unknown_sm = GpuModel::by_name("GH200-144GB").unwrap();
        assert_eq!((gpu_weight(unknown_sm), of(unknown_sm, "2g.36gb")), (7.0, Some(2.0)));
        assert_eq!((of(a100, "1g.10gb.x"), of(a100, "9g.90gb")), (None, None));
        assert_eq!(model("Tesla V100"), None);
    }
}
