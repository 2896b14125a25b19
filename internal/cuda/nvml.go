package cuda

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/dl"
)

// GPU is a device of the host, as NVML, the management library, describes it. It
// lists all devices: CUDA_VISIBLE_DEVICES does not hide any.
type GPU struct {
	Name, UUID string
	BusID      string // as Device.PCIBusID: "0000:3b:00.0"
	Total      uint64 // bytes of memory
	Used       uint64 // by all processes
	NUMA       int    // NUMA node of the host, -1 if unknown
}

// Topology says how the GPUs of a host are connected.
type Topology struct {
	DriverVersion string // "580.65.06"
	GPUs          []GPU
	// Paths[i][j] is the connection between two GPUs, in the words of `nvidia-smi
	// topo -m`: NV4 (four NVLinks), PIX (one PCIe switch), PXB (several), PHB (the
	// host bridge), NODE (bridges of one NUMA node), SYS (between NUMA nodes), X
	// (the same GPU).
	Paths [][]string
}

type nvml struct {
	lib *dl.Lib
	fn  nvmlFuncs
}

type nvmlFuncs struct {
	Init           uintptr `sym:"nvmlInit_v2"`
	ErrorString    uintptr `sym:"nvmlErrorString"`
	DriverVersion  uintptr `sym:"nvmlSystemGetDriverVersion"`
	Count          uintptr `sym:"nvmlDeviceGetCount_v2"`
	Handle         uintptr `sym:"nvmlDeviceGetHandleByIndex_v2"`
	Name           uintptr `sym:"nvmlDeviceGetName"`
	UUID           uintptr `sym:"nvmlDeviceGetUUID"`
	MemoryInfo     uintptr `sym:"nvmlDeviceGetMemoryInfo"`
	PciInfo        uintptr `sym:"nvmlDeviceGetPciInfo_v3"`
	CommonAncestor uintptr `sym:"nvmlDeviceGetTopologyCommonAncestor"`
	LinkState      uintptr `sym:"nvmlDeviceGetNvLinkState,optional"`
	LinkRemote     uintptr `sym:"nvmlDeviceGetNvLinkRemotePciInfo_v2,optional"`
}

// pciInfo is nvmlPciInfo_t, version 3.
type pciInfo struct {
	legacy                               [16]byte
	domain, bus, device, id, subsystemID uint32
	busID                                [32]byte
}

var loadNVML = sync.OnceValues(func() (*nvml, error) {
	lib, err := LibNVML.Query(0).Open()
	if err != nil {
		return nil, fmt.Errorf("cuda: %w", err)
	}
	n := &nvml{lib: lib}
	if err := lib.Resolve(&n.fn); err != nil {
		return nil, err
	}
	return n, n.check("nvmlInit", dl.Call(n.fn.Init))
})

// ReadTopology gets the GPUs of this host from NVML. NVML comes with the driver;
// nothing else needs it. RINGO_NVML_LIB names another library.
func ReadTopology() (*Topology, error) {
	n, err := loadNVML()
	if err != nil {
		return nil, err
	}
	t := &Topology{}
	if t.DriverVersion, err = n.text("nvmlSystemGetDriverVersion", func(p *byte, size uintptr) uintptr {
		return dl.Call(n.fn.DriverVersion, uintptr(unsafe.Pointer(p)), size)
	}); err != nil {
		return nil, err
	}
	handles, err := n.handles()
	if err != nil {
		return nil, err
	}
	for _, h := range handles {
		gpu, err := n.describe(h)
		if err != nil {
			return nil, err
		}
		t.GPUs = append(t.GPUs, gpu)
	}
	var links []map[string]int
	for _, h := range handles {
		links = append(links, n.links(h))
	}
	for i := range handles {
		row, err := n.paths(t.GPUs, handles, links, i)
		if err != nil {
			return nil, err
		}
		t.Paths = append(t.Paths, row)
	}
	return t, nil
}

func (n *nvml) check(call string, r uintptr) error {
	if int32(r) == 0 {
		return nil
	}
	text := *(**byte)(unsafe.Pointer(new(dl.Call(n.fn.ErrorString, r))))
	return fmt.Errorf("cuda: %s: %s (%d)", call, goString(text), int32(r))
}

func (n *nvml) text(call string, get func(p *byte, size uintptr) uintptr) (string, error) {
	b := make([]byte, 128)
	err := n.check(call, get(&b[0], uintptr(len(b))))
	s, _, _ := strings.Cut(string(b), "\x00")
	return s, err
}

func (n *nvml) handles() ([]uintptr, error) {
	var count uint32
	if err := n.check("nvmlDeviceGetCount", dl.Call(n.fn.Count, uintptr(unsafe.Pointer(&count)))); err != nil {
		return nil, err
	}
	out := make([]uintptr, count)
	for i := range out {
		if err := n.check("nvmlDeviceGetHandleByIndex", dl.Call(n.fn.Handle, uintptr(i), uintptr(unsafe.Pointer(&out[i])))); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (n *nvml) describe(h uintptr) (gpu GPU, err error) {
	if gpu.Name, err = n.text("nvmlDeviceGetName", func(p *byte, size uintptr) uintptr {
		return dl.Call(n.fn.Name, h, uintptr(unsafe.Pointer(p)), size)
	}); err != nil {
		return gpu, err
	}
	if gpu.UUID, err = n.text("nvmlDeviceGetUUID", func(p *byte, size uintptr) uintptr {
		return dl.Call(n.fn.UUID, h, uintptr(unsafe.Pointer(p)), size)
	}); err != nil {
		return gpu, err
	}
	var memory struct{ total, free, used uint64 }
	if err = n.check("nvmlDeviceGetMemoryInfo", dl.Call(n.fn.MemoryInfo, h, uintptr(unsafe.Pointer(&memory)))); err != nil {
		return gpu, err
	}
	gpu.Total, gpu.Used = memory.total, memory.used
	var pci pciInfo
	if err = n.check("nvmlDeviceGetPciInfo", dl.Call(n.fn.PciInfo, h, uintptr(unsafe.Pointer(&pci)))); err != nil {
		return gpu, err
	}
	gpu.BusID = pci.String()
	gpu.NUMA = numaNode(gpu.BusID)
	return gpu, nil
}

// String is the bus id in the form of CUDA and Linux: four digits for the domain.
func (p *pciInfo) String() string { return fmt.Sprintf("%04x:%02x:%02x.0", p.domain, p.bus, p.device) }

// numaNode reads the node from Linux; -1 is unknown.
func numaNode(busID string) int {
	text, err := os.ReadFile(filepath.Join("/sys/bus/pci/devices", busID, "numa_node"))
	if err != nil {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return -1
	}
	return node
}

// paths is row i of Topology.Paths. links holds the NVLinks of every GPU.
func (n *nvml) paths(gpus []GPU, handles []uintptr, links []map[string]int, i int) ([]string, error) {
	var row []string
	for j := range gpus {
		if i == j {
			row = append(row, "X")
			continue
		}
		if k := nvlinks(links[i], links[j], gpus[j].BusID); k > 0 {
			row = append(row, fmt.Sprintf("NV%d", k))
			continue
		}
		var level int32
		r := dl.Call(n.fn.CommonAncestor, handles[i], handles[j], uintptr(unsafe.Pointer(&level)))
		if err := n.check("nvmlDeviceGetTopologyCommonAncestor", r); err != nil {
			return nil, err
		}
		row = append(row, pathName(level))
	}
	return row, nil
}

// nvlinks counts the NVLinks between two GPUs: direct ones or, if there are none,
// those that both have to the same switches.
func nvlinks(a, b map[string]int, busOfB string) int {
	if a[busOfB] > 0 {
		return a[busOfB]
	}
	n := 0
	for remote, k := range a {
		n += min(k, b[remote])
	}
	return n
}

// pathName returns the name of an nvmlGpuTopologyLevel_t.
func pathName(level int32) string {
	switch level {
	case 0, 10: // one board, one switch
		return "PIX"
	case 20:
		return "PXB"
	case 30:
		return "PHB"
	case 40:
		return "NODE"
	}
	return "SYS"
}

// links counts the active NVLinks to each neighbour, by its bus id. Through a
// switch (NVSwitch) the neighbour is the switch.
func (n *nvml) links(h uintptr) map[string]int {
	const maxLinks = 18
	out := map[string]int{}
	if n.fn.LinkState == 0 || n.fn.LinkRemote == 0 {
		return out
	}
	for link := range uintptr(maxLinks) {
		var active uint32
		if int32(dl.Call(n.fn.LinkState, h, link, uintptr(unsafe.Pointer(&active)))) != 0 || active == 0 {
			continue
		}
		var remote pciInfo
		if int32(dl.Call(n.fn.LinkRemote, h, link, uintptr(unsafe.Pointer(&remote)))) == 0 {
			out[remote.String()]++
		}
	}
	return out
}
