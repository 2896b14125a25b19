// Package nvml asks NVIDIA's management library how the GPUs of this host are linked: by NVLink, and through which part of
// the PCI Express tree. The words are those of `nvidia-smi topo -m`.
//
//	lib, err := nvml.Load()
//	links, err := lib.Links([]string{"0000:1b:00.0", "0000:43:00.0"})
//
// NVML comes with the driver. RINGO_NVML_LIB names another library of the same interface.
package nvml
