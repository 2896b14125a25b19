package tensor

import (
	"unsafe"

	"github.com/ringo-ml/ringo/tensor/memory"
)

// hostDevice is the device of tensors outside of tapes: memory of the Go heap, which any CPU device may use.
var hostDevice = &host{}

// host does with the device of SetHost what memory alone cannot.
type host struct {
	use memory.Counter
	cpu Device
}

// SetHost gives tensors outside of tapes a device that computes, and returns theirs. Package cpu calls it, in all programs that import it.
func SetHost(cpu Device) Device {
	hostDevice.cpu = cpu
	return hostDevice
}

func (h *host) device() Device {
	if h.cpu == nil {
		fail("cpu", nil, `nothing computes in host memory: import "github.com/ringo-ml/ringo/tensor/cpu"`)
	}
	return h.cpu
}

func (h *host) String() string                      { return "cpu" }
func (h *host) Host() bool                          { return true }
func (h *host) Alloc(n int) (Ptr, error)            { return h.device().Alloc(n) }
func (h *host) Free(p Ptr)                          { h.device().Free(p) }
func (h *host) Kernels() *Table                     { return h.device().Kernels() }
func (h *host) Checked() func(Kernel, Queue, *Args) { return h.device().(Checker).Checked() }
func (h *host) Memory() *memory.Counter             { return &h.use }

func (h *host) Copy(dst, src Ptr, n int, _ Queue) {
	copy(unsafe.Slice((*byte)(dst), n), unsafe.Slice((*byte)(src), n))
}

func (h *host) Queue(k int) Queue {
	if h.cpu == nil {
		return nil
	}
	return h.cpu.Queue(k)
}

func (h *host) Mappable(n int) error {
	if m, ok := h.cpu.(mapper); ok {
		return m.Mappable(n)
	}
	return nil
}
