package slurm

import (
	"context"
	"fmt"

	"berth/reconciler/plan"
)

// gpuDevices checks the device files of workers.
type gpuDevices struct{ *control }

// check returns an error if a device file of a member is missing. slurmd exits if a line
// of gres.conf names a missing file.
func (c gpuDevices) check(ctx context.Context, m plan.Member) error {
	var paths []string
	for _, g := range m.GPUs {
		fs, err := deviceFiles(g.Devices)
		if err != nil {
			return err
		}
		if len(fs) != g.Count {
			return fmt.Errorf("node %s: %s names %d files for %d GPUs", m.Node, g.Devices, len(fs), g.Count)
		}
		paths = append(paths, fs...)
	}
	if len(paths) == 0 {
		return nil
	}
	res, err := c.worker(m).do(ctx, statOp(paths...))
	if err != nil {
		return err
	}
	for _, st := range res[0].Stats {
		if st.Type != "char" {
			return fmt.Errorf("host %s: %s is not a device file: the node declares GPUs that it does not have", m.Node, st.Path)
		}
	}
	return nil
}
