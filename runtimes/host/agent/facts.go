package agent

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"berth/runtimes"
)

const (
	// maxFact bounds the bytes that are read of a file of /proc or /sys.
	maxFact = 64 << 10
	// maxFacts bounds a list of facts.
	maxFacts = 64
)

// machine reads the facts of a host below root, which has proc, sys and dev.
type machine struct {
	root  string
	state stateDir
	disks []string // paths below root whose file systems are measured, beside that of state
}

func newMachine(root string, state stateDir, profiles []runtimes.Profile) machine {
	m := machine{root: root, state: state, disks: []string{"/"}}
	for _, p := range profiles {
		for _, disk := range p.DiskPaths {
			if !slices.Contains(m.disks, disk) {
				m.disks = append(m.disks, disk)
			}
		}
	}
	return m
}

// facts returns the facts of the host and of this program.
func (a *Agent) facts(op *runtimes.ReadFacts) (runtimes.Result, error) {
	if err := checkDevices(op.Devices); err != nil {
		return runtimes.Result{}, err
	}
	m := a.machine
	f := &runtimes.HostFacts{
		At: time.Now().UTC(), Load: m.load(), CPUs: m.cpus(), Disks: m.measure(),
		Kernel: m.word("proc/sys/kernel/osrelease"), BootID: m.word("proc/sys/kernel/random/boot_id"),
		Version: a.version, Protocol: Protocol,
	}
	f.MemoryMiB, f.AvailableMiB = m.memory()
	f.GPUs, f.GPUModels = m.gpus()
	f.Missing = m.missing(op.Devices)
	return runtimes.Result{Facts: f}, nil
}

// read returns the content of a file, or nil.
func (m machine) read(name string) []byte {
	f, err := os.Open(filepath.Join(m.root, name))
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, maxFact)
	n := 0
	for n < len(b) {
		k, err := f.Read(b[n:])
		if n += k; err != nil || k == 0 {
			break
		}
	}
	return b[:n]
}

// word returns the one word of a file, or "".
func (m machine) word(name string) string {
	words := strings.Fields(string(m.read(name)))
	if len(words) != 1 {
		return ""
	}
	return plain(words[0])
}

func (m machine) load() *runtimes.LoadFacts {
	var l runtimes.LoadFacts
	if n, err := fmt.Sscan(string(m.read("proc/loadavg")), &l.One, &l.Five, &l.Fifteen); n != 3 || err != nil {
		return nil
	}
	return &l
}

// cpus returns the number of CPUs that are online; 0: unknown. The file lists ranges, such as 0-3,8.
func (m machine) cpus() (n int) {
	for part := range strings.SplitSeq(m.word("sys/devices/system/cpu/online"), ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err1 := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || to < from {
			return 0
		}
		n += to - from + 1
	}
	return n
}

// memory returns the memory of the host and what is available of it; 0: unknown.
func (m machine) memory() (total, available int) {
	lines := bufio.NewScanner(bytes.NewReader(m.read("proc/meminfo")))
	for lines.Scan() {
		name, rest, _ := strings.Cut(lines.Text(), ":")
		kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
		switch {
		case err != nil:
		case name == "MemTotal":
			total = kib >> 10
		case name == "MemAvailable":
			available = kib >> 10
		}
	}
	return total, available
}

// measure measures the file systems of the paths that exist. The one with the ledger is measured on each host: without space there,
// this program has no effects.
func (m machine) measure() (out []runtimes.DiskFacts) {
	add := func(path, at string) {
		var st unix.Statfs_t
		if err := unix.Statfs(at, &st); err == nil {
			out = append(out, runtimes.DiskFacts{Path: path, SizeMiB: int64(st.Blocks) * st.Bsize >> 20,
				FreeMiB: int64(st.Bavail) * st.Bsize >> 20})
		}
	}
	for _, path := range m.disks {
		add(path, filepath.Join(m.root, path))
	}
	add(string(m.state), string(m.state))
	return out
}

// gpus returns the number of GPUs that the kernel knows, and the names that the driver gives them. The number is the higher one of
// both sources: a GPU of a virtual machine may be in one of them only.
func (m machine) gpus() (count *int, models []string) {
	pci, known := m.names("sys/bus/pci/devices"), m.names("proc/driver/nvidia/gpus")
	onBus := 0
	for _, name := range pci {
		if m.isGPU("sys/bus/pci/devices/" + name) {
			onBus++
		}
	}
	for _, name := range known[:min(len(known), maxFacts)] {
		for line := range strings.Lines(string(m.read("proc/driver/nvidia/gpus/" + name + "/information"))) {
			if model, ok := strings.CutPrefix(line, "Model:"); ok {
				models = append(models, plain(strings.TrimSpace(model)))
			}
		}
	}
	slices.Sort(models)
	if len(pci) == 0 && len(known) == 0 {
		return nil, nil
	}
	n := max(onBus, len(known))
	return &n, models
}

// missing returns the devices that do not exist or are no device files.
func (m machine) missing(devices []string) (out []string) {
	for _, name := range devices {
		if st, err := os.Stat(filepath.Join(m.root, name)); err != nil || st.Mode()&os.ModeDevice == 0 {
			out = append(out, name)
		}
	}
	return out
}

// checkDevices refuses other paths than those of device files.
func checkDevices(devices []string) error {
	if len(devices) > runtimes.MaxDevices {
		return invalid("%d devices: at most %d are read", len(devices), runtimes.MaxDevices)
	}
	for _, name := range devices {
		if err := clean(name); err != nil {
			return err
		}
		if !strings.HasPrefix(name, "/dev/") {
			return refuse("%s: not a path below /dev", plain(name))
		}
	}
	return nil
}

// isGPU reports whether a PCI device is a GPU for computing: an accelerator or a 3D controller of any maker, or a VGA controller of
// a maker of GPUs. The VGA controller of a server's management board is none.
func (m machine) isGPU(device string) bool {
	class, vendor := m.word(device+"/class"), m.word(device+"/vendor")
	switch {
	case strings.HasPrefix(class, "0x0302"):
		return true
	case strings.HasPrefix(class, "0x1200"), strings.HasPrefix(class, "0x0300"), strings.HasPrefix(class, "0x0380"):
		return vendor == "0x10de" || vendor == "0x1002" // NVIDIA, AMD
	}
	return false
}

// names returns the sorted names in a directory.
func (m machine) names(dir string) (names []string) {
	entries, err := os.ReadDir(filepath.Join(m.root, dir))
	if err != nil {
		return nil
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
