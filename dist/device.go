package dist

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
	"github.com/ringo-ml/ringo/tensor/cpu"
)

// DeviceFunc makes the device of a rank. local is the rank's number among the ranks of this host, from 0; threads is how many threads it
// may use. When all ranks are done, Run calls the Close method of the device, if it has one.
type DeviceFunc func(local, threads int) (tensor.Device, error)

var devices = map[string]DeviceFunc{"cpu": newCPU, "cuda": newCUDA}

func newCPU(_, threads int) (tensor.Device, error) { return cpu.New(threads), nil }

// Devices returns a value for Config.Device by the name of a kind of device: "cpu" or "cuda", as in the flag -device. "" leaves the
// choice to RINGO_DEVICE.
func Devices(name string) (DeviceFunc, error) {
	if name == "" {
		return nil, nil
	}
	if f := devices[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("dist: no device %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(devices)), ", "))
}

// DeviceFlag defines the flag -device of a program, with the values of Devices. Call it before flag.Parse, and after flag.Parse set
// Config.Device to what it points to.
func DeviceFlag() *DeviceFunc {
	f := new(DeviceFunc)
	flag.Func("device", "`kind` of device that ranks compute on: cpu or cuda (default: RINGO_DEVICE, or cpu)", func(name string) (err error) {
		*f, err = Devices(name)
		return err
	})
	return f
}
