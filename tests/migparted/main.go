// Reads a mig-parted configuration from stdin as nvidia-mig-parted does, and prints how many GPUs of a node with the given
// number of GPUs each configuration matches how often: "NAME 1 1 1". It ends with 1 and a line on stderr when mig-parted would
// refuse the document.
package main

import (
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"

	v1 "github.com/NVIDIA/mig-parted/api/spec/v1"
	"sigs.k8s.io/yaml"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	gpus, err := strconv.Atoi(os.Args[1])
	if err != nil {
		return err
	}
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	var spec v1.Spec
	if err := yaml.Unmarshal(text, &spec); err != nil {
		return err
	}
	names := make([]string, 0, len(spec.MigConfigs))
	for name := range spec.MigConfigs {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		fmt.Print(name)
		for gpu := 0; gpu < gpus; gpu++ {
			matched := 0
			for _, entry := range spec.MigConfigs[name] {
				if entry.MatchesDevices(gpu) {
					matched++
				}
			}
			fmt.Printf(" %d", matched)
		}
		fmt.Println()
	}
	return nil
}
