package doctor

import (
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"

	"github.com/ringo-ml/ringo/internal/cuda"
)

func TestText(t *testing.T) {
	gpu := cuda.Info{Index: 1, Name: "NVIDIA H200", Arch: "sm_100", Memory: 140 << 30, PCIBusID: "0000:3b:00.0"}
	found := Library{Name: "libcuda", Found: true, Path: "/lib/libcuda.so.580", Version: "CUDA 13.0"}
	lacking := Library{Name: "libcuda", Problem: "not found", Get: "install the driver"}
	for name, c := range map[string]struct {
		d    Diagnosis
		want []string
	}{
		"all": {Diagnosis{OpensLibs: true, Libraries: []Library{found}, GPUs: []cuda.Info{gpu}}, []string{"CUDA 13.0, /lib/libcuda.so.580",
			"GPU 1: NVIDIA H200, compute capability 10.0, 140.0 GiB, PCI 0000:3b:00.0", "Everything is there"}},
		"wheels": {Diagnosis{OpensLibs: true, Libraries: []Library{found}, GPUs: []cuda.Info{gpu}, Get: "pip install x"},
			[]string{"get what is missing:\n  pip install x"}},
		"no GPU": {Diagnosis{OpensLibs: true, Libraries: []Library{found}}, []string{"the driver shows none"}},
		"on bus": {Diagnosis{OpensLibs: true, Libraries: []Library{lacking}, Hardware: []string{"0000:3b:00.0"}},
			[]string{"one is on the PCI bus (0000:3b:00.0), but no libcuda; install the driver"}},
		"nodl": {Diagnosis{}, []string{"built with -tags nodl"}},
		"limited": {Diagnosis{Limits: []Limit{{Name: "open files", Option: "n", Value: 64, Note: "few"},
			{Name: "locked", Option: "l", Value: -1}}}, []string{"64 (few)", "unlimited"}},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			c.d.Write(&out)
			for _, want := range c.want {
				assert.Contains(t, out.String(), want)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	for _, c := range []struct {
		option string
		value  int64
		want   string
	}{
		{"n", 256, "256 (few for jobs of many ranks: ulimit -n 65536)"},
		{"n", 65536, "65536"},
		{"l", 8 << 20, "8 MiB (NCCL over InfiniBand locks more: ulimit -l unlimited)"},
		{"l", -1, "unlimited"},
		{"v", 32 << 30, "32.0 GiB (ranks that are processes reserve 80 GiB of addresses to share memory: ulimit -v unlimited, or RINGO_SHM=0)"},
		{"v", 100 << 30, "100.0 GiB"},
	} {
		l := Limit{Option: c.option, Value: c.value}
		l.judge()
		assert.Equal(t, c.want, l.String())
	}
}

func TestNVIDIAHardware(t *testing.T) {
	device := func(vendor, class string) map[string]string {
		return map[string]string{"vendor": vendor, "class": class}
	}
	root := fstest.MapFS{}
	for id, files := range map[string]map[string]string{
		"0000:00:02.0": device("0x8086", "0x030000"), // a GPU of another maker
		"0000:3b:00.0": device("0x10de", "0x030200"),
		"0000:3b:00.1": device("0x10de", "0x040300"), // its audio device
	} {
		for file, content := range files {
			root["sys/bus/pci/devices/"+id+"/"+file] = &fstest.MapFile{Data: []byte(content + "\n")}
		}
	}
	assert.Equal(t, []string{"0000:3b:00.0"}, nvidiaHardware(root))
}

func TestRDMA(t *testing.T) {
	root := fstest.MapFS{"sys/class/infiniband/mlx5_0/node_guid": &fstest.MapFile{}}
	assert.Equal(t, []string{"mlx5_0"}, rdmaDevices(root))
	assert.Empty(t, rdmaDevices(fstest.MapFS{}))
	m := MPI{Library: "MPICH Version: 5.0.2 (libmpi_abi.so.1, standard ABI), MPI_THREAD_SERIALIZED", RDMA: rdmaDevices(root)}
	assert.Equal(t, "MPICH Version: 5.0.2 (libmpi_abi.so.1, standard ABI), MPI_THREAD_SERIALIZED; RDMA devices mlx5_0: "+
		"MPI uses them with RINGO_BACKEND=mpi, TCP does not", m.String())
	assert.Equal(t, "none: no MPI: library not found", MPI{Problem: "no MPI: library not found"}.String())
}
