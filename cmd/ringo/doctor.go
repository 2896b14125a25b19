package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/ringo-ml/ringo/dist/launch"
	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
	"github.com/ringo-ml/ringo/internal/kernel"
)

// doctorCmd is `ringo doctor`.
type doctorCmd struct {
	Device string `default:"cpu" env:"RINGO_DEVICE" placeholder:"NAME" help:"What training needs: cpu or cuda."`
	JSON   bool   `help:"Print one JSON object."`
}

// Help is the text below the flags of `ringo doctor -h`.
func (*doctorCmd) Help() string {
	return `Shows what Ringo finds on this machine: instruction sets, shared memory, limits, and for GPUs the driver, NVRTC, cuBLASLt, NCCL
and NVML with their paths and versions; what is missing, and the command that gets it. The exit status is 0 when nothing that the
device needs is missing; the CPU needs no library.

  ringo doctor
  ringo doctor -device cuda && ringo run -n 8 ./prog -device cuda`
}

// diagnosis is what `ringo doctor -json` prints.
type diagnosis struct {
	Ringo     string          `json:"ringo"`
	Go        string          `json:"go"`
	OS        string          `json:"os"`
	Kernel    string          `json:"kernel"`
	OpensLibs bool            `json:"opens_libraries"` // false with -tags nodl
	CPU       cpuReport       `json:"cpu"`
	Shared    sharedReport    `json:"shared_memory"`
	Limits    []limit         `json:"limits"`
	Libraries []libraryReport `json:"libraries"`
	Hardware  []string        `json:"nvidia_pci_devices"` // also without a driver
	GPUs      []cuda.Info     `json:"gpus"`
	Get       string          `json:"get"`   // the command for all missing libraries, "" when there is none
	Wrong     []string        `json:"wrong"` // what the device that was asked for lacks
}

// cpuReport is what kernels run on.
type cpuReport struct {
	Model        string `json:"model"`
	Cores        int    `json:"cores"`
	Instructions string `json:"instructions"` // that kernels use
	Asked        string `json:"ringo_cpu"`    // the variable RINGO_CPU
}

// Run prints what was found, and returns an error that says what the device lacks.
func (c *doctorCmd) Run() error {
	if c.Device != "cpu" && c.Device != "cuda" {
		return usageOf("doctor", "-device %q is not cpu or cuda", c.Device)
	}
	d := examine(c.Device == "cuda")
	if c.JSON {
		b, err := json.MarshalIndent(d, "", " ")
		if err != nil {
			return err
		}
		fmt.Printf("%s\n", b)
	} else {
		d.write(os.Stdout)
	}
	if len(d.Wrong) > 0 {
		return errors.New(strings.Join(d.Wrong, "; "))
	}
	return nil
}

// examine looks at this machine. wantGPU says that a missing one is wrong.
func examine(wantGPU bool) *diagnosis {
	root := os.DirFS("/")
	host := thisHost()
	d := &diagnosis{
		Ringo: ringoVersion(), Go: runtime.Version(), OS: host.OS, Kernel: text(root, "proc/sys/kernel/osrelease"),
		OpensLibs: dl.Enabled, Shared: sharedMemory(), Limits: limits(), Hardware: nvidiaHardware(root),
		CPU: cpuReport{host.CPU, host.Cores, kernel.CPU(), os.Getenv("RINGO_CPU")},
	}
	if err := kernel.CPUError(); err != nil {
		d.Wrong = append(d.Wrong, err.Error())
	}
	if _, err := launch.FromEnv(os.Getenv); err != nil {
		d.Wrong = append(d.Wrong, err.Error())
	}
	d.examineCUDA(wantGPU)
	return d
}
