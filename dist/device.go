package dist

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringo-ml/ringo/tensor"
)

// DeviceFunc makes the device of a rank: number local of the ranks that run on this host, from 0 on, with so many threads of the
// host to itself. Run calls the device's Close method, if it has one, when all ranks are done.
type DeviceFunc func(local, threads int) (tensor.Device, error)

var devices = map[string]DeviceFunc{"cpu": newCPU, "cuda": newCUDA}

func newCPU(_, threads int) (tensor.Device, error) { return tensor.NewCPU(threads), nil }

// Devices returns what Config.Device is for a kind of device by its name, as a flag -device takes it: "cpu" or "cuda".
// "" leaves it to RINGO_DEVICE.
func Devices(name string) (DeviceFunc, error) {
	if name == "" {
		return nil, nil
	}
	if f := devices[name]; f != nil {
		return f, nil
	}
	return nil, fmt.Errorf("dist: no device %q: there are %s", name, strings.Join(slices.Sorted(maps.Keys(devices)), ", "))
}

// DeviceFlag defines the flag -device of a program, which says what its ranks compute on as Devices does. Call it before flag.Parse
// and give Config.Device what it points to.
func DeviceFlag() *DeviceFunc {
	f := new(DeviceFunc)
	flag.Func("device", "`kind` of device that ranks compute on: cpu or cuda (default: RINGO_DEVICE, or cpu)", func(name string) (err error) {
		*f, err = Devices(name)
		return err
	})
	return f
}
