package main

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"

	"github.com/ringo-ml/ringo/cmd/ringo/doctor"
)

// hostInfo is what a rank knows about its host. Fields are zero if the system does not tell.
type hostInfo struct {
	Host   string     `json:"host"`
	Key    string     `json:"-"` // differs between hosts, also if they have the same name
	Ranks  []int      `json:"ranks"`
	OS     string     `json:"os"`
	CPU    string     `json:"cpu"`
	Cores  int        `json:"cores"` // cores that a process may use
	Memory int        `json:"memory_bytes"`
	NUMA   []numaNode `json:"numa"`
	Caches []cache    `json:"caches"`
	GPUs   []gpuInfo  `json:"gpus"`
	Notes  []string   `json:"notes,omitempty"` // what is not known about them
}

// numaNode is memory and the cores near it.
type numaNode struct {
	Node   int    `json:"node"`
	CPUs   string `json:"cpus"`
	Memory int    `json:"memory_bytes"`
}

// cache is one kind of cache; there are Count of them.
type cache struct {
	Level int    `json:"level"`
	Type  string `json:"type"`
	Bytes int    `json:"bytes"` // size of one
	Count int    `json:"count"`
}

func thisHost() hostInfo {
	name, _ := os.Hostname() // on an error the name is empty
	h := hostInfo{Host: name, OS: runtime.GOOS + "/" + runtime.GOARCH, Cores: runtime.NumCPU()}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // Linux only
	net, _ := os.Readlink("/proc/self/ns/net")
	h.Key = name + " " + strings.TrimSpace(string(boot)) + " " + net
	h.readSystem(os.DirFS("/"))
	return h
}

// readSystem reads /proc and /sys of Linux.
func (h *hostInfo) readSystem(root fs.FS) {
	h.CPU = doctor.Field(root, "proc/cpuinfo", "model name")
	h.Memory = kilobytes(doctor.Field(root, "proc/meminfo", "MemTotal"))
	nodes, _ := fs.Glob(root, "sys/devices/system/node/node[0-9]*") // the pattern is valid
	for _, dir := range nodes {
		n, err := strconv.Atoi(strings.TrimPrefix(path.Base(dir), "node"))
		if err != nil {
			continue
		}
		h.NUMA = append(h.NUMA, numaNode{n, doctor.Text(root, dir+"/cpulist"),
			kilobytes(doctor.Field(root, dir+"/meminfo", fmt.Sprintf("Node %d MemTotal", n)))})
	}
	caches, _ := fs.Glob(root, "sys/devices/system/cpu/cpu[0-9]*/cache/index[0-9]*")
	seen := map[string]bool{}
	for _, dir := range caches {
		level, err := strconv.Atoi(doctor.Text(root, dir+"/level"))
		kind, shared := doctor.Text(root, dir+"/type"), doctor.Text(root, dir+"/shared_cpu_list")
		id := fmt.Sprint(level, kind, shared)
		size, ok := parseSize(doctor.Text(root, dir+"/size"))
		if err != nil || !ok || seen[id] {
			continue
		}
		seen[id] = true
		h.addCache(cache{level, kind, size, 1})
	}
}

func (h *hostInfo) addCache(c cache) {
	for i := range h.Caches {
		if x := &h.Caches[i]; x.Level == c.Level && x.Type == c.Type && x.Bytes == c.Bytes {
			x.Count++
			return
		}
	}
	h.Caches = append(h.Caches, c)
}

func kilobytes(s string) int {
	n, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(s, "kB")))
	if err != nil {
		return 0
	}
	return n << 10
}

// lines describes the host as text.
func (h *hostInfo) lines() []string {
	cpu := h.CPU
	if cpu == "" {
		cpu = "CPU not known"
	}
	first := fmt.Sprintf("%s, %d cores, %s", cpu, h.Cores, h.OS)
	if h.Memory > 0 {
		first += fmt.Sprintf(", %.1f GiB", float64(h.Memory)/(1<<30))
	}
	out := []string{first}
	for _, n := range h.NUMA {
		out = append(out, fmt.Sprintf("NUMA node %d: cores %s, %.1f GiB", n.Node, n.CPUs, float64(n.Memory)/(1<<30)))
	}
	var caches []string
	for _, c := range h.Caches {
		caches = append(caches, fmt.Sprintf("L%d %s %s × %d", c.Level, strings.ToLower(c.Type), sizeName(c.Bytes), c.Count))
	}
	if len(caches) > 0 {
		out = append(out, "caches: "+strings.Join(caches, ", "))
	}
	return out
}
