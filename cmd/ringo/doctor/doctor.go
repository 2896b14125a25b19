package doctor

import (
	"errors"
	"io/fs"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// Diagnosis is what was found; `ringo doctor -json` prints it.
type Diagnosis struct {
	Ringo     string      `json:"ringo"`
	Go        string      `json:"go"`
	OS        string      `json:"os"`
	Kernel    string      `json:"kernel"`
	OpensLibs bool        `json:"opens_libraries"` // false with -tags nodl
	CPU       CPU         `json:"cpu"`
	Shared    Shared      `json:"shared_memory"`
	Limits    []Limit     `json:"limits"`
	Libraries []Library   `json:"libraries"`
	MPI       MPI         `json:"mpi"`
	Hardware  []string    `json:"nvidia_pci_devices"` // found also without a driver
	GPUs      []cuda.Info `json:"gpus"`
	Get       string      `json:"get"`   // the command for all missing libraries; "" if there is none
	Wrong     []string    `json:"wrong"` // what is missing for the chosen device
}

// CPU is the processor that kernels run on.
type CPU struct {
	Model        string `json:"model"`
	Cores        int    `json:"cores"`
	Instructions string `json:"instructions"` // those that kernels use
	Asked        string `json:"ringo_cpu"`    // value of the variable RINGO_CPU
}

// Examine examines this machine. With wantGPU, a missing GPU is an error.
func Examine(wantGPU bool) *Diagnosis {
	root := os.DirFS("/")
	d := &Diagnosis{
		Ringo: Version(), Go: runtime.Version(), OS: runtime.GOOS + "/" + runtime.GOARCH, Kernel: Text(root, "proc/sys/kernel/osrelease"),
		OpensLibs: dl.Enabled, Shared: sharedMemory(), Limits: limits(), Hardware: nvidiaHardware(root),
		CPU: CPU{Field(root, "proc/cpuinfo", "model name"), runtime.NumCPU(), kernel.CPU(), os.Getenv("RINGO_CPU")},
	}
	if err := kernel.CPUError(); err != nil {
		d.Wrong = append(d.Wrong, err.Error())
	}
	if _, err := launch.FromEnv(os.Getenv); err != nil {
		d.Wrong = append(d.Wrong, err.Error())
	}
	d.examineCUDA(wantGPU)
	d.MPI = examineMPI(root)
	return d
}

// Err returns what is missing for the chosen device; nil if nothing is.
func (d *Diagnosis) Err() error {
	if len(d.Wrong) == 0 {
		return nil
	}
	return errors.New(strings.Join(d.Wrong, "; "))
}

// Text returns the content of a file without white space around it; "" if there is no such file.
func Text(root fs.FS, file string) string {
	b, err := fs.ReadFile(root, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// Field returns what follows "name:" in a file of /proc.
func Field(root fs.FS, file, name string) string {
	for line := range strings.Lines(Text(root, file)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Version is the version of Ringo, with the commit if known.
func Version() string {
	version, commit := "(devel)", ""
	if info, ok := debug.ReadBuildInfo(); ok {
		if info.Main.Version != "" {
			version = info.Main.Version
		}
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				commit = " " + s.Value
			}
		}
	}
	return version + commit
}
