package cuda

import (
	_ "embed"
	"fmt"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// Prelude is put before every source: what kernels share, in plain CUDA C++, which
// NVRTC compiles without any header, and so does the emulator's g++.
//
//go:embed ringo.cuh
var Prelude string

// full is the text for the compiler. #line makes messages show the lines of the
// source.
func (s Source) full() string {
	return fmt.Sprintf("#line 1 \"ringo.cuh\"\n%s\n#line 1 %q\n%s", Prelude, s.Name, s.Text)
}

// Module is compiled code on a device.
type Module struct {
	dev    *Device
	name   string
	handle uintptr
	funcs  map[string]*Func
}

// Module compiles a source for the device and loads it. The same source and options
// are compiled and loaded once per device. Code in the disk cache is not compiled
// again. A goroutine waits only for the code that it needs.
func (dev *Device) Module(src Source, options ...string) (*Module, error) {
	arch := dev.Arch()
	if src.Specific {
		arch += "a"
	}
	key := strings.Join(append([]string{arch, src.Name, src.Text}, options...), "\x00")
	dev.mu.Lock()
	m := dev.modules[key]
	dev.mu.Unlock()
	if m != nil {
		return m, nil
	}
	c, err := LoadCompiler()
	if err != nil {
		return nil, err
	}
	code, err := c.CompileCached(src, arch, options...)
	if err != nil {
		return nil, err
	}
	dev.mu.Lock()
	defer dev.mu.Unlock()
	if m := dev.modules[key]; m != nil { // another goroutine was faster
		return m, nil
	}
	m = &Module{dev: dev, name: src.Name, funcs: map[string]*Func{}}
	r := dl.Call(dev.drv.fn.ModuleLoadData, uintptr(unsafe.Pointer(&m.handle)), uintptr(unsafe.Pointer(&code[0])))
	if err := dev.check("cuModuleLoadData("+src.Name+")", r); err != nil {
		if c.Major > dev.drv.Version/1000 {
			err = fmt.Errorf("%w (the driver supports CUDA %s, but the code was compiled by NVRTC %d.%d: update the driver, "+
				"or `pip install nvidia-cuda-nvrtc-cu12`)",
				err, versionString(dev.drv.Version), c.Major, c.Minor)
		}
		return nil, err
	}
	dev.modules[key] = m
	return m, nil
}

// Func returns a kernel by its name, declared extern "C". It is looked up once, and
// loaded now. Otherwise a driver loads it at the first launch and waits for the
// device, which is a deadlock for kernels that wait for each other.
func (m *Module) Func(name string) (*Func, error) {
	m.dev.mu.Lock()
	defer m.dev.mu.Unlock()
	if f := m.funcs[name]; f != nil {
		return f, nil
	}
	f := &Func{Name: name, dev: m.dev}
	r := dl.Call(m.dev.drv.fn.ModuleGetFunction, uintptr(unsafe.Pointer(&f.handle)), m.handle, uintptr(unsafe.Pointer(cString(name))))
	if err := m.dev.check(fmt.Sprintf("cuModuleGetFunction(%s in %s)", name, m.name), r); err != nil {
		return nil, err
	}
	if load := m.dev.drv.fn.FuncLoad; load != 0 {
		if err := f.check("cuFuncLoad", dl.Call(load, f.handle)); err != nil {
			return nil, err
		}
	}
	m.funcs[name] = f
	return f, nil
}
