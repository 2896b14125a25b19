package measure

import (
	"os"

	"github.com/ringo-ml/ringo/dist"
	"github.com/ringo-ml/ringo/tensor"
)

// OpenDevice opens the device for measurements, as rank 0 would. The CPU has one thread, like PyTorch's.
func OpenDevice(name string) (dev tensor.Device, closer func(), err error) {
	f, err := dist.Devices(name)
	if err != nil {
		return nil, nil, err
	}
	if dev, err = f(0, 1); err != nil {
		return nil, nil, err
	}
	switch x := dev.(type) {
	case interface{ Close() }:
		closer = x.Close
	case interface{ Close() error }:
		closer = func() { _ = x.Close() } // the program ends, so the error does not matter
	}
	return dev, closer, nil
}

// openTuned is OpenDevice with the fastest algorithms of products, which it times.
func openTuned(name string) (dev tensor.Device, closer func(), err error) {
	const variable = "RINGO_CUDA_TUNE"
	if err := os.Setenv(variable, "1"); err != nil {
		return nil, nil, err
	}
	defer os.Unsetenv(variable)
	return OpenDevice(name)
}
