//! What a pod with init containers, sidecars and overhead takes of a node.
//!
//! The rule is Kubernetes' own: containers run together with the sidecars (init containers that restart always); an ordinary
//! init container runs alone with the sidecars that started before it; the pod needs the larger of both, plus its overhead.
//! Where the pod states CPU, memory or huge pages for itself as a whole, that replaces the sum over its containers.
//!
//! While a pod is resized on its node, three amounts differ: what is asked for, what the node has granted and what is in force.
//! Each may be what the pod holds in a moment, so the largest counts. A resize that the node has refused for good counts no more.

use super::{ResourceName, Resources};

/// One container's requests and its part in the pod's life.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContainerRequests {
    /// What it asks for; `pods` is zero.
    pub requests: Resources,
    /// An init container with `restartPolicy: Always`. Ignored for ordinary containers.
    pub sidecar: bool,
}

/// What is known of a resize on the node, of a container or of a pod as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OnNode {
    /// What the node has granted (`allocatedResources`).
    pub granted: Resources,
    /// What is in force (`resources.requests` of the status).
    pub in_force: Resources,
    /// Whether the node will never grant what is asked for.
    pub infeasible: bool,
}

impl OnNode {
    /// What may be held in a moment, where `asked` stands in the spec. Only CPU and memory can be resized: of everything else
    /// the spec holds whatever the node says.
    pub fn held(&self, asked: &Resources) -> Resources {
        let mut held = asked.clone();
        if self.infeasible {
            held.cpu_milli = 0;
            held.memory = 0;
        }
        held.raise_to(&self.granted);
        held.raise_to(&self.in_force);
        held
    }
}

/// What a pod states for itself as a whole; `None` and absent for what it does not state.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodLevel {
    /// CPU in thousandths of a core.
    pub cpu_milli: Option<u64>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Huge pages by size, in bytes.
    pub huge_pages: Vec<(ResourceName, u64)>,
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
    /// `spec.resources.requests`.
    pub pod_level: PodLevel,
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
        total.cpu_milli = self.pod_level.cpu_milli.unwrap_or(total.cpu_milli);
        total.memory = self.pod_level.memory.unwrap_or(total.memory);
        for (name, amount) in &self.pod_level.huge_pages {
            total.set(name.clone(), *amount);
        }
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
                _ => pod.pod_level.cpu_milli = Some(requests.cpu_milli),
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

    /// Amounts are CPU: asked for, granted, in force.
    fn check_held([asked, granted, in_force]: [u64; 3], infeasible: bool, expected: u64) {
        let on_node = OnNode { granted: cpu(granted), in_force: cpu(in_force), infeasible };
        assert_eq!(on_node.held(&cpu(asked)).cpu_milli, expected, "{on_node:?} {asked}");
    }

    #[test]
    fn a_resize_counts_as_the_most_it_may_hold() {
        check_held([100, 100, 100], false, 100);
        // Shrinking: asked for, then granted, then done.
        check_held([100, 800, 800], false, 800);
        check_held([100, 100, 800], false, 800);
        // Growing.
        check_held([800, 100, 100], false, 800);
        check_held([800, 800, 100], false, 800);
        // Refused for good.
        check_held([9000, 100, 100], true, 100);
        check_held([100, 800, 200], true, 800);
        // Not told yet.
        check_held([100, 0, 0], false, 100);
    }

    #[test]
    fn what_cannot_be_resized_is_held_as_asked() {
        let mut asked = cpu(9000);
        asked.set("nvidia.com/mig-1g.5gb".into(), 2);
        let on_node = OnNode { granted: cpu(100), in_force: cpu(100), infeasible: true };
        let held = on_node.held(&asked);
        assert_eq!((held.cpu_milli, held.get(&"nvidia.com/mig-1g.5gb".into())), (100, 2));
    }

    #[test]
    fn huge_pages_of_the_pod_replace_those_of_its_containers() {
        let pages = ResourceName::from("hugepages-2Mi");
        for (containers, pod, expected) in
            [(0, Some(8), 8), (4, Some(8), 8), (8, Some(4), 4), (4, Some(0), 0), (4, None, 4)]
        {
            let mut requests = Resources::default();
            requests.set(pages.clone(), containers);
            let pod = PodRequests {
                containers: vec![ContainerRequests { requests, sidecar: false }],
                pod_level: PodLevel {
                    huge_pages: pod.into_iter().map(|amount| (pages.clone(), amount)).collect(),
                    ..PodLevel::default()
                },
                ..PodRequests::default()
            };
            assert_eq!(pod.total().get(&pages), expected, "{containers} {pod:?}");
        }
    }
}
