package daemon

import (
	"fmt"
	"time"
)

// durationRange bounds a duration of berth.yaml. Outside of least and most it is an error; outside of
// low and high it is a warning: its unit is probably wrong.
type durationRange struct {
	field       string
	value       time.Duration
	least, most time.Duration
	low, high   time.Duration
	effect      string // of a value above high
}

// durations returns the durations of the configuration with their ranges.
func (c *Config) durations() []durationRange {
	const period, day = 100 * time.Millisecond, 24 * time.Hour
	all := []durationRange{
		{"poll", time.Duration(c.Poll), period, day, time.Second, time.Hour, "a commit that no webhook announces is found this late"},
		{"interval", time.Duration(c.Interval), period, day, time.Second, time.Hour, "a failure on a host is found this late"},
		{"flush_window", time.Duration(c.FlushWindow), time.Millisecond, time.Hour, 50 * time.Millisecond, time.Minute,
			"berth status and the pull request are this much behind"},
		{"usage_interval", time.Duration(c.Usage), period, day, 10 * time.Second, 6 * time.Hour, "berth usage is this much behind"},
		{"nodes.heartbeat", time.Duration(c.Nodes.Heartbeat), period, time.Hour, 5 * time.Second, 5 * time.Minute,
			"a silent host is found this late"},
		{"nodes.not_ready_after", time.Duration(c.Nodes.NotReady), period, day, 20 * time.Second, time.Hour, "a silent host is found this late"},
		{"nodes.lost_after", time.Duration(c.Nodes.Lost), period, 7 * day, time.Minute, day, "a lost node is found this late"},
		{"artifacts.interval", time.Duration(c.Artifacts.Interval), period, 7 * day, time.Minute, day, "a new artifact is found this late"},
	}
	if c.SSH != nil {
		l := c.SSH.limits()
		all = append(all,
			durationRange{"ssh.command_timeout", l.Command, time.Second, 5 * time.Minute, time.Second, 5 * time.Minute, ""},
			durationRange{"ssh.ready_timeout", l.Ready, l.Command, 10 * time.Minute, l.Command, 10 * time.Minute, ""})
	}
	return all
}

// ranges checks the durations.
func (k conflictCheck) ranges() {
	for _, d := range k.config.durations() {
		k.check(d.value < d.least || d.value > d.most, d.field, d.field, fmt.Sprintf("it is out of range: choose %s to %s",
			plainDuration(d.least), plainDuration(d.most)))
	}
	n := k.config.Nodes
	k.check(n.NotReady < 2*n.Heartbeat, "nodes.not_ready_after", "nodes.not_ready_after",
		"one lost answer would make a node not ready: choose at least twice nodes.heartbeat")
	k.check(n.Lost <= n.NotReady, "nodes.lost_after", "nodes.lost_after", "choose more than nodes.not_ready_after")
}

// ranges returns warnings about durations that are allowed and unusual.
func (w warningCheck) ranges() (out []string) {
	for _, d := range w.config.durations() {
		usual := fmt.Sprintf("usual is %s to %s", plainDuration(d.low), plainDuration(d.high))
		switch {
		case d.value < d.low:
			out = append(out, fmt.Sprintf("%s: %s is unusually short and costs load: %s", d.field, plainDuration(d.value), usual))
		case d.value > d.high:
			out = append(out, fmt.Sprintf("%s: %s is unusually long: %s; %s", d.field, plainDuration(d.value), d.effect, usual))
		}
	}
	return out
}

// plainDuration writes a duration as berth.yaml takes it, such as 10m.
func plainDuration(d time.Duration) string {
	for _, unit := range []struct {
		of   time.Duration
		name string
	}{{time.Hour, "h"}, {time.Minute, "m"}, {time.Second, "s"}} {
		if d >= unit.of && d%unit.of == 0 {
			return fmt.Sprintf("%d%s", d/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%dms", d.Milliseconds())
}
