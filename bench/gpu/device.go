package main

import (
	"fmt"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// openDevice opens what sections measure on. The CPU has one thread, like PyTorch beside it.
func openDevice(name string) (device, error) {
	switch name {
	case "cpu":
		return tensor.NewCPU(1), nil
	case "cuda":
		d, err := cuda.NewDevice(0)
		if err != nil {
			return nil, err
		}
		return gpu{d}, nil
	}
	return nil, fmt.Errorf("-device %q is not cpu or cuda", name)
}

// gpu is a GPU whose Close has nobody to report to.
type gpu struct{ *cuda.Device }

func (g gpu) Close() { _ = g.Device.Close() } // the program ends
