package doctor

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/nccl"
)

// Library is one of NVIDIA's libraries. If it cannot be used, Problem says why, and Get how to get it.
type Library struct {
	Name    string `json:"name"`
	For     string `json:"for"`
	Path    string `json:"path,omitempty"`
	Version string `json:"version,omitempty"`
	Found   bool   `json:"found"` // there is one, with or without a problem
	Problem string `json:"problem,omitempty"`
	Get     string `json:"get,omitempty"`
}

// examineCUDA looks for the driver, its devices and the other libraries.
func (d *Diagnosis) examineCUDA(want bool) {
	driver, major, why := d.openDriver()
	if driver != nil {
		gpus, err := driver.Devices()
		if d.GPUs = gpus; err != nil {
			why = err.Error()
		} else if _, err := cuda.CountGPUs(); err != nil {
			why = err.Error()
		}
	}
	if want && why != "" {
		d.Wrong = append(d.Wrong, why)
	}
	var wheels []string
	for _, lib := range []cuda.Library{cuda.LibNVRTC, cuda.LibCuBLASLt, cuda.LibNCCL, cuda.LibNVML} {
		r := openLibrary(lib, major)
		if lib == cuda.LibNVRTC && r.Problem == "" && len(d.GPUs) > 0 {
			r.compile(d.GPUs[0].Arch, major)
		}
		d.Libraries = append(d.Libraries, r)
		wheel := lib.Wheel(major)
		if r.Problem == "" || wheel == "" {
			continue
		}
		wheels = append(wheels, wheel)
		if want && driver != nil && lib != cuda.LibNCCL { // a single process does not need NCCL
			d.Wrong = append(d.Wrong, fmt.Sprintf("no usable %s, which %s: %s", lib, lib.For(), r.Get))
		}
	}
	if len(wheels) > 0 && d.OpensLibs {
		d.Get = "pip install " + strings.Join(wheels, " ")
	}
}

// openDriver opens the driver. If there is none that works, driver is nil and why is a sentence that says so.
func (d *Diagnosis) openDriver() (driver *cuda.Driver, major int, why string) {
	lib := cuda.LibDriver
	r := Library{Name: lib.String(), For: lib.For()}
	driver, err := cuda.Load()
	if err != nil {
		why = err.Error()
		if r.Problem, r.Found = why, exists(lib.Query(0)); !r.Found {
			r.Get = lib.HowToGet(0)
		}
		d.Libraries = append(d.Libraries, r)
		return nil, 13, why
	}
	r.Found, r.Path, r.Version = true, mappedPath(driver.Lib.Path), driver.Lib.Version
	d.Libraries = append(d.Libraries, r)
	return driver, driver.Version / 1000, ""
}

// openLibrary opens a library and reads its version.
func openLibrary(lib cuda.Library, major int) Library {
	r := Library{Name: lib.String(), For: lib.For()}
	q := lib.Query(major)
	opened, err := q.Open()
	r.Found = err == nil || exists(q)
	if err == nil {
		r.Path = mappedPath(opened.Path)
		r.Version, err = versions[lib](opened)
	}
	if err != nil {
		r.Problem, r.Get = err.Error(), lib.HowToGet(major)
	}
	return r
}

// compile tests NVRTC: a library that opens may still lack its second file, or not know the GPU.
func (r *Library) compile(arch string, major int) {
	c, err := cuda.OpenCompiler(r.Path)
	if err == nil {
		_, err = c.Compile(cuda.Source{Name: "doctor.cu", Text: `extern "C" __global__ void nothing() {}`}, arch)
	}
	if err != nil {
		r.Problem, r.Get = err.Error(), cuda.LibNVRTC.HowToGet(major)
	}
}

// exists reports whether there is a file that Open would try, or whether the variable names one.
func exists(q dl.Query) bool {
	return os.Getenv(q.Env) != "" || slices.ContainsFunc(q.Candidates(), filepath.IsAbs)
}

// versions asks libraries for their versions.
var versions = map[cuda.Library]func(*dl.Lib) (string, error){
	cuda.LibNVRTC: func(l *dl.Lib) (string, error) {
		var major, minor int32
		err := ask(l, "nvrtcVersion", uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor)))
		return fmt.Sprintf("%d.%d", major, minor), err
	},
	cuda.LibCuBLASLt: func(l *dl.Lib) (string, error) {
		fn, err := l.Sym("cublasLtGetVersion")
		if err != nil {
			return "", err
		}
		return dotted(int(dl.Call(fn))), nil
	},
	cuda.LibNCCL: func(l *dl.Lib) (string, error) {
		var v int32
		err := ask(l, "ncclGetVersion", uintptr(unsafe.Pointer(&v)))
		if err == nil && v < nccl.MinVersion {
			err = fmt.Errorf("%s is NCCL %s; %s or newer is needed", l.Path, dotted(int(v)), dotted(nccl.MinVersion))
		}
		return dotted(int(v)), err
	},
	cuda.LibNVML: func(l *dl.Lib) (string, error) {
		if err := ask(l, "nvmlInit_v2"); err != nil {
			return "", err
		}
		b := make([]byte, 81) // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE, and a zero byte
		err := ask(l, "nvmlSystemGetDriverVersion", uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)-1))
		version, _, _ := strings.Cut(string(b), "\x00")
		return "driver " + version, err
	},
}

// ask calls a function that returns 0 for success.
//
//go:uintptrescapes
func ask(l *dl.Lib, name string, args ...uintptr) error {
	fn, err := l.Sym(name)
	if err != nil {
		return err
	}
	if r := int32(dl.Call(fn, args...)); r != 0 {
		return fmt.Errorf("%s: %s returned %d", l.Path, name, r)
	}
	return nil
}

// dotted writes 23203 as 2.32.3, the form of NCCL and cuBLAS.
func dotted(v int) string { return fmt.Sprintf("%d.%d.%d", v/10000, v/100%100, v%100) }

// mappedPath returns the file that was opened by a name, if the system tells (Linux).
func mappedPath(name string) string {
	base, _, ok := strings.Cut(filepath.Base(name), ".so")
	f, err := os.Open("/proc/self/maps")
	if err != nil || !ok {
		return name
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		i := strings.IndexByte(lines.Text(), '/')
		if i < 0 {
			continue
		}
		path := lines.Text()[i:]
		if strings.HasPrefix(filepath.Base(path), base+".so") {
			return path
		}
	}
	return name
}

// nvidiaHardware lists the bus ids of NVIDIA's display and compute devices, from /sys.
func nvidiaHardware(root fs.FS) []string {
	var out []string
	dirs, _ := fs.Glob(root, "sys/bus/pci/devices/*") // the pattern is valid
	for _, dir := range dirs {
		if Text(root, dir+"/vendor") == "0x10de" && strings.HasPrefix(Text(root, dir+"/class"), "0x03") {
			out = append(out, filepath.Base(dir))
		}
	}
	return out
}
