package measure

import (
	gpu "github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/tensor/cuda"
)

// Bare begins the name of the row with the host's time for an operation less that for a launch.
const Bare = "without the launch, "

// measureHost measures a small operation and, on a GPU, what it costs more than the launch of a kernel that does nothing.
func measureHost(m *meter) error {
	const name = "2x+1 of 1024 elements"
	op, check := hostOp(m)
	dev, ok := m.dev.(*cuda.Device)
	if !ok {
		return m.addHost(name, "ops/s", check, op)
	}
	if err := dev.Bind(); err != nil {
		return err
	}
	defer dev.Unbind()
	if err := m.addHost(name, "ops/s", check, op); err != nil {
		return err
	}
	launch, err := bareLaunch(dev)
	if err != nil {
		return err
	}
	if err := m.addHost("launch of an empty kernel", "launches/s", unchecked, launch); err != nil {
		return err
	}
	both := m.rows[len(m.rows)-2:]
	m.ours(Bare+name, "µs/op", []float64{1e6/both[0].Median - 1e6/both[1].Median})
	return nil
}

// bareLaunch returns a function that launches a kernel by the driver alone: one without operands, which is the cheapest.
func bareLaunch(dev *cuda.Device) (launch func(), err error) {
	module, err := dev.GPU().Module(gpu.Source{Name: "nothing.cu", Text: `extern "C" __global__ void nothing() {}`})
	if err != nil {
		return nil, err
	}
	f, err := module.Func("nothing")
	if err != nil {
		return nil, err
	}
	stream, args := dev.Queue(0).(*cuda.Queue).Stream(), gpu.NewArgs()
	return func() { must(stream.Launch(f, gpu.Dim{X: 1}, gpu.Dim{X: 256}, 0, args)) }, nil
}
