package gitrepo_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo"
	"berth/reconciler/gitrepo/gittest"
	"berth/schema/usage"
)

// A day of a cluster is written whole and replaces the earlier files of the day, also those that it no longer needs. Of
// a day that is twice in a batch the last one counts. Other clusters, tenants and days stay.
func TestDayOfUsageIsWrittenWhole(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	r := open(t, s)
	b := batch(1, fetch(t, r).Main)
	day := func(tenant, cluster, date string, ids ...int) usage.Day {
		d := usage.Day{Tenant: tenant, Cluster: cluster, Date: date}
		for _, id := range ids {
			at := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
			j := usage.Job{Cluster: cluster, JobID: id, Submitted: at, Started: at, Ended: at.Add(time.Minute)}
			d.Records = append(d.Records, usage.Record{Day: date, Job: j})
		}
		return d
	}
	large := day("physics", "c", "2026-11-01")
	for id := range 20_000 {
		large.Records = append(large.Records, day("physics", "c", "2026-11-01", id+1).Records...)
	}
	b.Usage = []usage.Day{
		day("physics", "c", "2026-11-01", 7), large, day("physics", "d", "2026-11-01", 1), day("", "c", "2026-11-01", 2),
		day("physics", "c", "2026-11-02", 3), day("physics", "c", "2026-11-03", 4),
	}
	tip, err := r.WriteStatus(t.Context(), "", b)
	require.NoError(t, err)
	read := func(tenant, cluster, first string) (all []string) {
		for rec, err := range r.UsageOf(t.Context(), tip, tenant, cluster, first) {
			require.NoError(t, err)
			all = append(all, fmt.Sprint(rec.Day[8:], " ", rec.JobID))
		}
		return all
	}
	require.Len(t, read("physics", "c", ""), 20_002)
	b.Usage = []usage.Day{day("physics", "c", "2026-11-01", 5, 6), day("physics", "c", "2026-11-03")}
	tip, err = r.WriteStatus(t.Context(), tip, b)
	require.NoError(t, err)
	require.Equal(t, []string{"01 5", "01 6", "02 3"}, read("physics", "c", ""))
	require.Equal(t, []string{"02 3"}, read("physics", "c", "2026-11-02"))
	require.Equal(t, []string{"01 1"}, read("physics", "d", ""))
	require.Equal(t, []string{"01 2"}, read("", "c", ""))
	require.Empty(t, read("physics", "c", "2026-11-03"))
	files, err := s.Files(tip)
	require.NoError(t, err)
	var paths []string
	for path := range files {
		if strings.HasPrefix(path, "usage/") {
			paths = append(paths, path)
		}
	}
	require.ElementsMatch(t, []string{
		"usage/2026-11-01/_platform/c.jsonl", "usage/2026-11-01/physics/c.jsonl", "usage/2026-11-01/physics/d.jsonl",
		"usage/2026-11-02/physics/c.jsonl",
	}, paths)
	same, err := r.WriteStatus(t.Context(), tip, b)
	require.NoError(t, err)
	require.Equal(t, tip, same)
}

// The last change of a path is that of its commit, and not of a later one. A new mirror has the newest commit only, which
// does not show it.
func TestLastChangeOfAPath(t *testing.T) {
	t.Parallel()
	s := gittest.New(t, estateFiles())
	var at time.Time
	r := open(t, s, func(o *gitrepo.Options) { o.Now = func() time.Time { return at } })
	main, tip := fetch(t, r).Main, ""
	for hour := range 3 {
		at = time.Date(2026, 11, 1, hour, 0, 0, 0, time.UTC)
		b := batch(uint64(hour+1), main)
		if hour == 1 {
			b.Usage = []usage.Day{{Cluster: "c", Date: "2026-11-01", Records: []usage.Record{{Day: "2026-11-01",
				Job: usage.Job{Cluster: "c", JobID: 1, Submitted: at, Started: at, Ended: at}}}}}
		}
		var err error
		tip, err = r.WriteStatus(t.Context(), tip, b)
		require.NoError(t, err)
	}
	last := func(r *gitrepo.Repo, path string) time.Time {
		got, err := r.LastChange(t.Context(), tip, path)
		require.NoError(t, err)
		return got
	}
	require.Equal(t, time.Date(2026, 11, 1, 1, 0, 0, 0, time.UTC), last(r, usage.Dir))
	require.True(t, last(r, "nothing").IsZero())
	fresh := open(t, s)
	fetch(t, fresh)
	require.True(t, last(fresh, usage.Dir).IsZero())
}
