// NVIDIA's own parser of mig-parted configurations, for the end-to-end test of `pack --mig-parted`. It has a module of its own
// so that what it needs does not mix with the control plane's libraries.
module migparted

go 1.26.0

require (
	github.com/NVIDIA/mig-parted v0.13.1
	sigs.k8s.io/yaml v1.6.0
)

require (
	github.com/NVIDIA/go-nvlib v0.8.1 // indirect
	github.com/NVIDIA/go-nvml v0.13.0-1 // indirect
	github.com/google/uuid v1.6.0 // indirect
	github.com/sirupsen/logrus v1.9.3 // indirect
	go.yaml.in/yaml/v2 v2.4.2 // indirect
	golang.org/x/sys v0.31.0 // indirect
)
