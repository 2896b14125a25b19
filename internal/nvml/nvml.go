package nvml

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/ringo-ml/ringo/internal/cuda"
	"github.com/ringo-ml/ringo/internal/dl"
)

// Library is NVML.
type Library struct {
	Lib    *dl.Lib
	Driver string // version of the driver: "580.159.04"
	fn     funcs
}

type funcs struct {
	Init          uintptr `sym:"nvmlInit_v2"`
	DriverVersion uintptr `sym:"nvmlSystemGetDriverVersion"`
	ErrorString   uintptr `sym:"nvmlErrorString"`
	HandleByBus   uintptr `sym:"nvmlDeviceGetHandleByPciBusId_v2"`
	LinkState     uintptr `sym:"nvmlDeviceGetNvLinkState"`
	LinkRemote    uintptr `sym:"nvmlDeviceGetNvLinkRemotePciInfo_v2"`
	LinkKind      uintptr `sym:"nvmlDeviceGetNvLinkRemoteDeviceType,optional"`
	Ancestor      uintptr `sym:"nvmlDeviceGetTopologyCommonAncestor"`
	PCIeGen       uintptr `sym:"nvmlDeviceGetMaxPcieLinkGeneration"`
	PCIeWidth     uintptr `sym:"nvmlDeviceGetMaxPcieLinkWidth"`
}

// Results and kinds of NVML.
const (
	invalidArgument = 2
	notSupported    = 3
	toSwitch        = 2 // NVML_NVLINK_DEVICE_TYPE_SWITCH
	maxNVLinks      = 18
)

var load = sync.OnceValues(func() (*Library, error) { return open(cuda.LibNVML.Query(0)) })

// Load opens NVML, once per process; later calls return the same. The error says how to get it.
func Load() (*Library, error) { return load() }

func open(q dl.Query) (*Library, error) {
	lib, err := q.Open()
	if err != nil {
		return nil, fmt.Errorf("nvml: %s: %w", cuda.LibNVML.HowToGet(0), err)
	}
	l := &Library{Lib: lib}
	if err := lib.Resolve(&l.fn); err != nil {
		return nil, fmt.Errorf("nvml: %w", err)
	}
	if err := l.check("nvmlInit", dl.Call(l.fn.Init)); err != nil {
		return nil, err
	}
	text := make([]byte, 81) // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE and a zero
	err = l.check("nvmlSystemGetDriverVersion", dl.Call(l.fn.DriverVersion, uintptr(unsafe.Pointer(&text[0])), uintptr(len(text)-1)))
	l.Driver, _, _ = strings.Cut(string(text), "\x00")
	return l, err
}

// Path is where in the PCI Express tree two GPUs meet, the nearest first: NVML's nvmlGpuTopologyLevel_t.
type Path int

// The paths.
const (
	SameBoard Path = 0
	PIX       Path = 10 // one PCIe switch
	PXB       Path = 20 // several PCIe switches
	PHB       Path = 30 // the host bridge
	NODE      Path = 40 // bridges of one NUMA node
	SYS       Path = 50 // the link between NUMA nodes
)

// String is the word of nvidia-smi.
func (p Path) String() string {
	names := map[Path]string{SameBoard: "PSB", PIX: "PIX", PXB: "PXB", PHB: "PHB", NODE: "NODE", SYS: "SYS"}
	if name, ok := names[p]; ok {
		return name
	}
	return fmt.Sprintf("path %d", int(p))
}

// Link is what two GPUs are linked by.
type Link struct {
	NVLinks int  // directly, or all into the same NVLink switches; 0: only PCI Express
	Path    Path // the way without NVLink
}

// String is the word of nvidia-smi: NV18, or the path without NVLink.
func (l Link) String() string {
	if l.NVLinks > 0 {
		return fmt.Sprintf("NV%d", l.NVLinks)
	}
	return l.Path.String()
}

// GPU is one device's own connections.
type GPU struct {
	PCIeGeneration, PCIeWidth int
	Links                     []Link // to each GPU that was asked for; that to itself means nothing
}

// GPUs describes the connections of the GPUs with these PCI bus ids (in any notation) with each other.
func (l *Library) GPUs(busIDs []string) ([]GPU, error) {
	handles := make([]uintptr, len(busIDs))
	out := make([]GPU, len(busIDs))
	links := make([]ends, len(busIDs))
	for i, id := range busIDs {
		name := append([]byte(id), 0)
		err := l.check("nvmlDeviceGetHandleByPciBusId of "+id, dl.Call(l.fn.HandleByBus, uintptr(unsafe.Pointer(&name[0])), uintptr(unsafe.Pointer(&handles[i]))))
		if err != nil {
			return nil, err
		}
		if links[i], err = l.ends(handles[i]); err != nil {
			return nil, err
		}
		if out[i].PCIeGeneration, err = l.number("nvmlDeviceGetMaxPcieLinkGeneration", l.fn.PCIeGen, handles[i]); err != nil {
			return nil, err
		}
		if out[i].PCIeWidth, err = l.number("nvmlDeviceGetMaxPcieLinkWidth", l.fn.PCIeWidth, handles[i]); err != nil {
			return nil, err
		}
	}
	for i := range out {
		out[i].Links = make([]Link, len(busIDs))
		for j := range out {
			if i == j {
				continue
			}
			path, err := l.number("nvmlDeviceGetTopologyCommonAncestor", l.fn.Ancestor, handles[i], handles[j])
			if err != nil {
				return nil, err
			}
			out[i].Links[j] = Link{links[i].to[normal(busIDs[j])] + min(links[i].switches, links[j].switches), Path(path)}
		}
	}
	return out, nil
}

// ends counts the active NVLinks of a GPU by where they lead.
type ends struct {
	switches int
	to       map[string]int // GPUs by bus id
}

func (l *Library) ends(handle uintptr) (ends, error) {
	e := ends{to: map[string]int{}}
	for link := range uintptr(maxNVLinks) {
		active, err := l.number("nvmlDeviceGetNvLinkState", l.fn.LinkState, handle, link)
		if code, ok := errors.AsType[*Error](err); ok && (code.Code == notSupported || code.Code == invalidArgument) {
			break // no NVLink, or no more of them
		} else if err != nil {
			return e, err
		}
		if active == 0 {
			continue
		}
		if l.fn.LinkKind != 0 {
			kind, err := l.number("nvmlDeviceGetNvLinkRemoteDeviceType", l.fn.LinkKind, handle, link)
			if err == nil && kind == toSwitch {
				e.switches++
				continue
			}
		}
		var pci pciInfo
		if err := l.check("nvmlDeviceGetNvLinkRemotePciInfo", dl.Call(l.fn.LinkRemote, handle, link, uintptr(unsafe.Pointer(&pci)))); err != nil {
			return e, err
		}
		id, _, _ := strings.Cut(string(pci.BusID[:]), "\x00")
		e.to[normal(id)]++
	}
	return e, nil
}

// pciInfo is nvmlPciInfo_t.
type pciInfo struct {
	_     [16]byte // the bus id with a domain of four digits
	_     [5]uint32
	BusID [32]byte
}

// normal writes a bus id as Linux does: 00000000:3B:00.0 is 0000:3b:00.0.
func normal(busID string) string {
	id := strings.ToLower(busID)
	if domain, rest, ok := strings.Cut(id, ":"); ok && len(domain) > 4 {
		id = domain[len(domain)-4:] + ":" + rest
	}
	return id
}

// number calls a function that writes an int behind its arguments.
func (l *Library) number(call string, fn, handle uintptr, args ...uintptr) (int, error) {
	var v int32
	var r uintptr
	if len(args) == 0 {
		r = dl.Call(fn, handle, uintptr(unsafe.Pointer(&v)))
	} else {
		r = dl.Call(fn, handle, args[0], uintptr(unsafe.Pointer(&v)))
	}
	return int(v), l.check(call, r)
}

// Error is a failed call of NVML.
type Error struct {
	Call string
	Code int // nvmlReturn_t
	Text string
}

// Error names the call and NVML's words.
func (e *Error) Error() string { return fmt.Sprintf("nvml: %s: %s (%d)", e.Call, e.Text, e.Code) }

// check is nil for success.
func (l *Library) check(call string, r uintptr) error {
	code := int(int32(r))
	if code == 0 {
		return nil
	}
	return &Error{call, code, cString(dl.Call(l.fn.ErrorString, uintptr(code)))}
}

// cString copies the C string at an address that NVML returned: static text.
func cString(address uintptr) string {
	p := *(**byte)(unsafe.Pointer(&address))
	if p == nil {
		return "unknown to this NVML"
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}
