package cuda

// Info describes a device.
type Info struct {
	Index    int    `json:"index"`
	Name     string `json:"name"`
	Arch     string `json:"arch"` // "sm_90": compute capability 9.0
	Memory   int64  `json:"memory_bytes"`
	PCIBusID string `json:"pci_bus_id"`
}

// Devices describes the devices. It makes no context, so it does not use or change
// them.
func (d *Driver) Devices() ([]Info, error) {
	n, err := d.Count()
	if err != nil {
		return nil, err
	}
	out := make([]Info, n)
	for i := range out {
		dev := &Device{Index: i, drv: d}
		if err := dev.describe(); err != nil {
			return nil, err
		}
		bus, err := dev.PCIBusID()
		if err != nil {
			return nil, err
		}
		out[i] = Info{i, dev.Name, dev.Arch(), dev.Memory, bus}
	}
	return out, nil
}
