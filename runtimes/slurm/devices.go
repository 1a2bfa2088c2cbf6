package slurm

import (
	"context"
	"fmt"

	"berth/reconciler/plan"
)

// gpuDevices checks the device files of workers.
type gpuDevices struct{ *control }

// gresLines returns the lines of gres.conf for members that have joined and for new
// members of u whose devices exist. A member without its devices gets no line, and
// its join fails.
func (c gpuDevices) gresLines(ctx context.Context, u *plan.Unit) []gresLine {
	next := record{}
	for _, m := range c.rec.Joined {
		next.setGres(m)
	}
	var fresh []plan.Member
	for _, m := range u.Members {
		if _, in := c.rec.joined(m.Name); !in {
			fresh = append(fresh, m)
		}
	}
	lacking := c.missing(ctx, fresh)
	for _, m := range fresh {
		if err := lacking[m.Name]; err != nil {
			c.log.Warn("worker left out of gres.conf", "worker", m.Name, "reason", err.Error())
			continue
		}
		next.setGres(m)
	}
	return next.Gres
}

// missing returns an error for each member that lacks device files. slurmd exits if a
// line of gres.conf names a missing file.
func (c gpuDevices) missing(ctx context.Context, members []plan.Member) map[string]error {
	out := map[string]error{}
	errs := inParallel(members, func(m plan.Member) error { return c.check(ctx, m) })
	for i, m := range members {
		out[m.Name] = errs[i]
	}
	return out
}

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
