//! The rights of the scheduler under test: what the manifests ship, applied as they stand.

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Node, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::api::{ListParams, PostParams};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::fixtures;
use crate::harness::{ControlPlane, MIG_SCHEDULER, manifest_dir};

/// Where the scheduler lives, by the manifests.
pub const NAMESPACE: &str = "mig-scheduler";

/// Gives the scheduler's user the rights that the manifests ship, and waits until the API server knows of them.
pub async fn apply(plane: &ControlPlane) -> Result<()> {
    let client = plane.client();
    for file in ["namespace.yaml", "serviceaccount.yaml", "clusterrole.yaml", "role.yaml"] {
        let path = manifest_dir().join("manifests/base").join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
        for document in serde_yaml::Deserializer::from_str(&text) {
            let document: Value =
                serde::Deserialize::deserialize(document).with_context(|| format!("read {file}"))?;
            create(&client, document).await.with_context(|| format!("create what {file} says"))?;
        }
    }
    let user = plane.client_for(MIG_SCHEDULER).await?;
    fixtures::wait_until("the scheduler's rights are known", Duration::from_secs(20), || async {
        let nodes = Api::<Node>::all(user.clone()).list(&ListParams::default().limit(1)).await;
        let lease = Api::<Lease>::namespaced(user.clone(), NAMESPACE).get_opt("mig-scheduler").await;
        Ok(match (nodes, lease) {
            (Ok(_), Ok(_)) => Ok(()),
            (Err(error), _) | (_, Err(error)) => Err(error.to_string()),
        })
    })
    .await
}

async fn create(client: &Client, document: Value) -> Result<()> {
    match document["kind"].as_str().unwrap_or_default() {
        "Namespace" => cluster_wide::<Namespace>(client, document).await,
        "ServiceAccount" => in_namespace::<ServiceAccount>(client, document).await,
        "ClusterRole" => cluster_wide::<ClusterRole>(client, document).await,
        "ClusterRoleBinding" => cluster_wide::<ClusterRoleBinding>(client, document).await,
        "Role" => in_namespace::<Role>(client, document).await,
        "RoleBinding" => in_namespace::<RoleBinding>(client, document).await,
        other => bail!("no test applies a {other:?}"),
    }
}

async fn cluster_wide<K>(client: &Client, document: Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = ClusterResourceScope> + Clone + std::fmt::Debug,
    K: DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(document)?;
    Api::all(client.clone()).create(&PostParams::default(), &object).await?;
    Ok(())
}

async fn in_namespace<K>(client: &Client, document: Value) -> Result<()>
where
    K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + std::fmt::Debug,
    K: DeserializeOwned + serde::Serialize,
{
    let object: K = serde_json::from_value(document)?;
    let namespace = object.meta().namespace.clone().context("a manifest names its namespace")?;
    Api::namespaced(client.clone(), &namespace).create(&PostParams::default(), &object).await?;
    Ok(())
}
