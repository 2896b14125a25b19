package cuda

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Attribute is a CUdevice_attribute.
type Attribute int

// Attributes of a device.
const (
	Multiprocessors      Attribute = 16
	L2CacheSize          Attribute = 38
	computeMajor         Attribute = 75
	computeMinor         Attribute = 76
	pageableAccess       Attribute = 88
	MaxSharedPerBlockMax Attribute = 97 // limit with SetShared
)

// Device is a GPU with its primary context, the one that all libraries of the
// process share (NCCL, cuBLASLt).
type Device struct {
	Index        int
	Name         string
	Major, Minor int // compute capability
	Memory       int64

	drv      *Driver
	ctx      uintptr
	popped   uintptr // for cuCtxPopCurrent, which must write it somewhere
	stats    counters
	captures atomic.Int32 // recordings that are running
	recent   history

	mu      sync.Mutex
	pools   []*Pool
	modules map[string]*Module
}

// Open returns a device. All calls with the same index return the same one.
func (d *Driver) Open(index int) (*Device, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if dev := d.devices[index]; dev != nil {
		return dev, nil
	}
	n, err := d.Count()
	if err != nil {
		return nil, err
	}
	if index < 0 || index >= n {
		return nil, fmt.Errorf("cuda: there is no device %d: %d found (CUDA_VISIBLE_DEVICES=%q)", index, n, os.Getenv("CUDA_VISIBLE_DEVICES"))
	}
	dev := &Device{Index: index, drv: d, modules: map[string]*Module{}}
	if err := dev.describe(); err != nil {
		return nil, err
	}
	if err := dev.check("cuDevicePrimaryCtxRetain",
		dl.Call(d.fn.DevicePrimaryCtxRetain, uintptr(unsafe.Pointer(&dev.ctx)), dev.handle())); err != nil {
		return nil, err
	}
	d.devices[index] = dev
	return dev, nil
}

// handle is the CUdevice: since CUDA 2 it is the index.
func (dev *Device) handle() uintptr { return uintptr(dev.Index) }

func (dev *Device) describe() error {
	fn := &dev.drv.fn
	name := make([]byte, 256)
	if err := dev.check("cuDeviceGetName",
		dl.Call(fn.DeviceGetName, uintptr(unsafe.Pointer(&name[0])), uintptr(len(name)), dev.handle())); err != nil {
		return err
	}
	dev.Name, _, _ = strings.Cut(string(name), "\x00")
	if err := dev.check("cuDeviceTotalMem", dl.Call(fn.DeviceTotalMem, uintptr(unsafe.Pointer(&dev.Memory)), dev.handle())); err != nil {
		return err
	}
	var err error
	if dev.Major, err = dev.Attribute(computeMajor); err != nil {
		return err
	}
	dev.Minor, err = dev.Attribute(computeMinor)
	return err
}

// Arch is the architecture that kernels are compiled for: "sm_90".
func (dev *Device) Arch() string { return fmt.Sprintf("sm_%d%d", dev.Major, dev.Minor) }

// Attribute returns a property of the device.
func (dev *Device) Attribute(a Attribute) (int, error) {
	var v int32
	r := dl.Call(dev.drv.fn.DeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(a), dev.handle())
	return int(v), dev.check("cuDeviceGetAttribute", r)
}

// PCIBusID returns the device's address on the PCI bus, "0000:3b:00.0", as in NVML
// and in /sys/bus/pci.
func (dev *Device) PCIBusID() (string, error) {
	id := make([]byte, 32)
	r := dl.Call(dev.drv.fn.DeviceGetPCIBusID, uintptr(unsafe.Pointer(&id[0])), uintptr(len(id)), dev.handle())
	s, _, _ := strings.Cut(string(id), "\x00")
	return strings.ToLower(s), dev.check("cuDeviceGetPCIBusId", r)
}

// Lock binds the goroutine to its OS thread, and makes the device's context current
// there. Contexts belong to threads, and every other call of this package needs
// one. Call Unlock after each Lock; they nest, also across devices.
func (dev *Device) Lock() error {
	runtime.LockOSThread()
	if err := dev.check("cuCtxPushCurrent", dl.Call4(dev.drv.fn.CtxPushCurrent, dev.ctx, 0, 0, 0)); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	return nil
}

// Unlock undoes Lock.
func (dev *Device) Unlock() {
	dl.Call4(dev.drv.fn.CtxPopCurrent, uintptr(unsafe.Pointer(&dev.popped)), 0, 0, 0)
	runtime.UnlockOSThread()
}

// Sync waits for all work queued on the device. Stats counts it.
func (dev *Device) Sync() error {
	dev.stats.syncs.Add(1)
	return dev.check("cuCtxSynchronize", dl.Call(dev.drv.fn.CtxSynchronize))
}

// EnablePeer lets kernels of this device use the memory of another one. It is an
// error if there is no path between the two, but no error if it is enabled already.
func (dev *Device) EnablePeer(peer *Device) error {
	var can int32
	r := dl.Call(dev.drv.fn.DeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), dev.handle(), peer.handle())
	if err := dev.check("cuDeviceCanAccessPeer", r); err != nil {
		return err
	}
	if can == 0 {
		return fmt.Errorf("cuda: device %d cannot use the memory of device %d: there is no peer-to-peer path", dev.Index, peer.Index)
	}
	r = dl.Call(dev.drv.fn.CtxEnablePeerAccess, peer.ctx, 0)
	if int32(r) == codePeerEnabled {
		return nil
	}
	return dev.check("cuCtxEnablePeerAccess", r)
}

// debugging reports RINGO_CUDA_DEBUG=1, which makes errors appear where they
// happen: new streams wait after every launch, and pools get each block from the
// driver, in exactly the size asked for.
func debugging() bool { return os.Getenv("RINGO_CUDA_DEBUG") == "1" }

// check returns an error unless r is success.
func (dev *Device) check(call string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	return dev.fail(call, int(int32(r)))
}

func (dev *Device) fail(call string, code int) error {
	err := dev.drv.failure(call, dev.Index, code)
	if asynchronous(code) {
		err.Launches = dev.recent.names()
	}
	return err
}

// Stats counts what a device was asked to do. In steady state a training step
// copies nothing to or from the host and never synchronizes. Tests compare two
// Stats to show it.
type Stats struct {
	Launches     int64 // kernels and graphs
	HostToDevice int64 // copies, also asynchronous ones
	DeviceToHost int64
	Syncs        int64 // waits of the host: for the device, a stream or an event
	Mallocs      int64 // calls of cuMemAlloc and cuMemHostAlloc
}

type counters struct{ launches, toDevice, toHost, syncs, mallocs atomic.Int64 }

// Stats returns the counts since the device was opened.
func (dev *Device) Stats() Stats {
	c := &dev.stats
	return Stats{c.launches.Load(), c.toDevice.Load(), c.toHost.Load(), c.syncs.Load(), c.mallocs.Load()}
}

// history holds the last launches of a device. Several threads may write; then a
// slot may show a newer launch.
type history struct {
	next  atomic.Uint64
	slots [16]atomic.Pointer[Func]
}

func (h *history) add(f *Func) {
	h.slots[(h.next.Add(1)-1)%uint64(len(h.slots))].Store(f)
}

// names lists the launches, newest first.
func (h *history) names() []string {
	var out []string
	for i, n := h.next.Load(), 0; i > 0 && n < len(h.slots); i, n = i-1, n+1 {
		if f := h.slots[(i-1)%uint64(len(h.slots))].Load(); f != nil {
			out = append(out, f.Name)
		}
	}
	return out
}
