package inspect

import (
	"fmt"

	"berth/cmd/internal/cli"
	"berth/schema/usage"
)

// LiveUsage is the JSON of `berth usage --server`: the answer of the daemon.
type LiveUsage struct {
	Format string `json:"format"` // berth.usage_live/v1
	usage.ProjectUsage
}

// Text implements cli.Report. Below the table it has a line for each unit that says until when its days are known.
func (u *LiveUsage) Text(p *cli.Page) error {
	if len(u.Items) == 0 {
		_, err := fmt.Fprintf(p, "%s uses no unit\n", cli.Visible(u.ProjectID))
		return err
	}
	t := p.Table("UNIT", "APP", "DAY", "STATE", "JOBS", "CPU HOURS", "GPU HOURS", "MEMORY GIB HOURS")
	t.DropFirst("APP", "STATE")
	for _, item := range u.Items {
		for _, d := range item.Days {
			t.Row(cli.Visible(item.Unit), cli.Visible(item.AppSlug), cli.Visible(d.Day), state(d.Closed), fmt.Sprint(d.Jobs),
				hours(d.CPUSeconds, 1), hours(d.GPUSeconds, 1), hours(d.MemoryMiBSeconds, 1024))
		}
	}
	if err := t.Flush(); err != nil || !p.HasHeaders() {
		return err
	}
	if _, err := fmt.Fprintln(p); err != nil {
		return err
	}
	for _, item := range u.Items {
		if _, err := fmt.Fprintf(p, "%s: %s\n", cli.Visible(item.Unit), asOf(item)); err != nil {
			return err
		}
	}
	return nil
}

// asOf says until when the use of a unit is known.
func asOf(u usage.UnitUsage) string {
	switch reason := cli.Visible(u.Reason); {
	case u.Observed == nil:
		return "unknown: " + reason
	case reason != "":
		return fmt.Sprintf("as written, known until %s: %s", cli.Stamp(u.ObservedAt), reason)
	}
	return fmt.Sprintf("as of %s, %d s before the answer", cli.Stamp(u.ObservedAt), u.AgeSeconds)
}
