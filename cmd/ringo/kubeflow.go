package main

import (
	"fmt"
	"net"
	"os"
	"strconv"

	"github.com/alecthomas/kong"
)

// kubeflow gives flags of `ringo run` that are not on the command line the values that Kubeflow Trainer has for torchrun, which reads
// PET_NNODES and so on in the place of its own flags.
func kubeflow(_ *kong.Context, parent *kong.Path, flag *kong.Flag) (any, error) {
	if parent.Node().Name != "run" {
		return nil, nil
	}
	name := map[string]string{"ranks": "PET_NPROC_PER_NODE", "nodes": "PET_NNODES", "node-rank": "PET_NODE_RANK",
		"rdzv": "PET_MASTER_ADDR"}[flag.Name]
	value := os.Getenv(name)
	if value == "" {
		return nil, nil
	}
	switch flag.Name {
	case "ranks", "node-rank":
		if _, err := strconv.Atoi(value); err != nil { // torchrun also takes auto, cpu and gpu
			return nil, fmt.Errorf("%s is %q, want a number; the flag overrides it", name, value)
		}
	case "rdzv":
		port := os.Getenv("PET_MASTER_PORT")
		if port == "" {
			return nil, fmt.Errorf("%s is %q, and PET_MASTER_PORT is not set", name, value)
		}
		value = net.JoinHostPort(value, port)
	}
	return value, nil
}
