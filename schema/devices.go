package schema

import (
	"fmt"
	"path"
	"regexp"
	"strings"
)

var deviceRange = regexp.MustCompile(`^(/dev/(?:[A-Za-z0-9_-]+/)*[A-Za-z0-9_-]+)(\[[0-9]{1,3}-[0-9]{1,3}\])?$`)

// DeviceFiles returns the device files of the GPUs. It expands a range such as /dev/nvidia[0-3].
func (g GPU) DeviceFiles() ([]string, error) {
	devices := g.Devices
	if path.Clean(devices) != devices || !strings.HasPrefix(devices, "/dev/") {
		return nil, fmt.Errorf("devices %q: want a path below /dev", devices)
	}
	m := deviceRange.FindStringSubmatch(devices)
	if m == nil {
		return nil, fmt.Errorf("devices %q: want a path below /dev with at most one range at its end, as in /dev/nvidia[0-3]", devices)
	}
	if m[2] == "" {
		return []string{devices}, nil
	}
	var from, to int
	if _, err := fmt.Sscanf(m[2], "[%d-%d]", &from, &to); err != nil || from > to || to-from > 255 {
		return nil, fmt.Errorf("devices %q: want an ascending range of at most 256 numbers", devices)
	}
	var out []string
	for i := from; i <= to; i++ {
		out = append(out, fmt.Sprintf("%s%d", m[1], i))
	}
	return out, nil
}
