.DEFAULT_GOAL := help
.PHONY: help controlplane

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

controlplane: ## Build the control plane that the end-to-end tests start (needs Go; about 7 minutes once)
	@tests/controlplane/build.sh
