//! What a pod with init containers, sidecars and overhead takes of a node.
//!
//! The rule is Kubernetes' own: containers run together with the sidecars (init containers that restart always); an ordinary
//! init container runs alone with the sidecars that started before it; the pod needs the larger of both, plus its overhead.
//! Where the pod states CPU or memory for itself as a whole, that replaces the sum over its containers.

use super::Resources;

/// One container's requests and its part in the pod's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// What it asks for; `pods` is zero.
    pub requests: Resources,
    /// An init container with `restartPolicy: Always`. Ignored for ordinary containers.
    pub sidecar: bool,
}

/// Everything in a pod's spec that decides what it takes of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodRequests {
    /// `spec.containers`.
    pub containers: Vec<ContainerRequests>,
    /// `spec.initContainers`, in order.
    pub init_containers: Vec<ContainerRequests>,
    /// `spec.overhead`, set by the pod's RuntimeClass.
    pub overhead: Resources,
    /// `spec.resources.requests`: CPU in milli, memory in bytes, where the pod states them as a whole.
    pub pod_level: (Option<u64>, Option<u64>),
}

impl PodRequests {
    /// What the pod takes of a node, itself counted as one pod.
    pub fn total(&self) -> Resources {
        let mut sidecars = Resources::default();
        let mut total = Resources::default();
        for init in &self.init_containers {
            let mut together = sidecars.clone();
            together.add(&init.requests);
            total.raise_to(&together);
            if init.sidecar {
                sidecars = together;
            }
        }
        let mut running = sidecars;
        for container in &self.containers {
            running.add(&container.requests);
        }
        total.raise_to(&running);
        total.cpu_milli = self.pod_level.0.unwrap_or(total.cpu_milli);
        total.memory = self.pod_level.1.unwrap_or(total.memory);
        total.add(&self.overhead);
        total.cut();
        total.pods = 1;
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(cpu_milli: u64) -> Resources {
        let mut resources = Resources::default();
        resources.cpu_milli = cpu_milli;
        resources
    }

    /// `text` lists containers: `100` an ordinary one, `i100` an init container, `s100` a sidecar, `o100` overhead, `p100` the
    /// pod's own request.
    fn check(text: &str, expected_milli: u64) {
        let mut pod = PodRequests::default();
        for word in text.split_whitespace() {
            let (kind, amount) =
                word.split_at(word.len() - word.trim_start_matches(char::is_alphabetic).len());
            let requests = cpu(amount.parse().unwrap());
            match kind {
                "" => pod.containers.push(ContainerRequests { requests, sidecar: false }),
                "i" => pod.init_containers.push(ContainerRequests { requests, sidecar: false }),
                "s" => pod.init_containers.push(ContainerRequests { requests, sidecar: true }),
                "o" => pod.overhead = requests,
                _ => pod.pod_level.0 = Some(requests.cpu_milli),
            }
        }
        assert_eq!((pod.total().cpu_milli, pod.total().pods), (expected_milli, 1), "{text}");
    }

    #[test]
    fn follows_kubernetes_rules() {
        check("", 0);
        check("100 200", 300);
        check("i500 100 200", 500);
        check("i100 100 200", 300);
        check("s50 100 200", 350);
        check("s50 i400 100 200", 450);
        check("i400 s50 100 200", 400);
        check("s50 s70 i10 100", 220);
        check("s10 i300 s20 i300 100", 330);
        check("i500 100 o25", 525);
        check("i500 100 p200 o25", 225);
    }
}
