package main

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/cmd/internal/inspect"
	"berth/reconciler/queueing"
	"berth/schema"
	"berth/schema/usage"
)

// With a server, usage shows what a project used until now, and below the table until when that is. Flags of the branch
// and of the daemon do not go together.
func TestUsageOfADaemon(t *testing.T) {
	used := usage.LiveUsage{ObservedAt: time.Now().UTC(), Days: []usage.DaySum{
		{Day: "2026-10-30", ProjectID: "physics.lattice", Closed: true, Jobs: 2, Amounts: usage.Amounts{CPUSeconds: 5400}},
		{Day: "2026-10-31", ProjectID: "physics.lattice", Jobs: 1, Amounts: usage.Amounts{GPUSeconds: 3600, MemoryMiBSeconds: 1024 * 7200}},
	}}
	server, _, _ := queueServer(t, 0, func(o *queueing.Options) {
		o.Usage = func(context.Context, schema.Key) (usage.LiveUsage, error) { return used, nil }
	})
	t.Setenv("BERTH_TOKEN", annasToken)
	run := func(args ...string) string {
		t.Helper()
		out, _, err := berthCmd("", append([]string{"usage", "--project", "physics.lattice"}, args...)...)
		require.NoError(t, err, out)
		return out
	}
	const table = `^UNIT +APP +DAY +STATE +JOBS +CPU HOURS +GPU HOURS +MEMORY GIB HOURS
Instance physics.lattice/train +slurm +2026-10-30 +closed +2 +1.5000 +0.0000 +0.0000
Instance physics.lattice/train +slurm +2026-10-31 +open +1 +0.0000 +1.0000 +2.0000

Instance physics.lattice/train: as `
	require.Regexp(t, table+`of \S+ \S+Z, \d+ s before the answer\n$`, run("--server", server.URL))
	var got inspect.LiveUsage
	require.NoError(t, json.Unmarshal([]byte(run("--server", server.URL, "-o", "json")), &got))
	require.Equal(t, []any{"berth.usage_live/v1", "physics.lattice", 2}, []any{got.Format, got.ProjectID, len(got.Items[0].Days)})

	t.Setenv("BERTH_SERVER", server.URL)
	require.Regexp(t, table, run("--live"))
	for text, args := range map[string][]string{
		"--from is for the branch":    {"--live", "--from", "2026-10-01"},
		"--repo is for the branch":    {"--server", server.URL, "--repo", "."},
		"-o csv is for the branch":    {"--live", "-o", "csv"},
		"--break-glass is for the da": {"--break-glass", "an incident"},
		`"lattice" is not a project`:  {"--live", "--project", "lattice"},
	} {
		_, exit, err := berthCmd("", append([]string{"usage", "--project", "physics.lattice"}, args...)...)
		require.ErrorContains(t, err, text)
		require.Equal(t, 2, exit, text)
	}
	_, exit, err := berthCmd("", "usage", "--live")
	require.ErrorContains(t, err, "--project is missing")
	require.Equal(t, 2, exit)
	_, exit, err = berthCmd("", "usage", "--live", "--project", "biology.genomes")
	require.ErrorContains(t, err, "not_found")
	require.Equal(t, 1, exit)
}

// What was written last has its time and the reason, and what is unknown is not zero.
func TestUsageThatIsNotRead(t *testing.T) {
	used := usage.LiveUsage{ObservedAt: time.Date(2026, 10, 31, 9, 0, 0, 0, time.UTC), Reason: "accounting does not answer"}
	server, _, _ := queueServer(t, 0, func(o *queueing.Options) {
		o.Usage = func(context.Context, schema.Key) (usage.LiveUsage, error) { return used, nil }
	})
	t.Setenv("BERTH_TOKEN", annasToken)
	show := func(server string) string {
		out, _, err := berthCmd("", "usage", "--project", "physics.lattice", "--server", server)
		require.NoError(t, err)
		return out
	}
	require.Contains(t, show(server.URL),
		"\nInstance physics.lattice/train: as written, known until 2026-10-31 09:00:00Z: accounting does not answer\n")
	used.ObservedAt = time.Time{}
	server, _, _ = queueServer(t, 0, func(o *queueing.Options) {
		o.Usage = func(context.Context, schema.Key) (usage.LiveUsage, error) { return used, nil }
	})
	require.Contains(t, show(server.URL), "\nInstance physics.lattice/train: unknown: accounting does not answer\n")
}
