package gitrepo_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/reconciler/gitrepo/gittest"
	"berth/schema/usage"
)

// UsageSince reads the days of one tenant, of which some have no records, or those of everybody.
func TestUsageSinceReadsOneTenant(t *testing.T) {
	t.Parallel()
	r := open(t, gittest.New(t, estateFiles()))
	b := batch(1, fetch(t, r).Main)
	start := time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)
	for id, tenant := range []string{"physics", "biology", "", "physics"} {
		at := start.AddDate(0, 0, id)
		b.Usage = append(b.Usage, usage.Record{OrgID: tenant, Job: usage.Job{Cluster: "c", JobID: id + 1, Submitted: at, Started: at, Ended: at.Add(time.Minute)}})
	}
	tip, err := r.WriteStatus(t.Context(), "", b)
	require.NoError(t, err)
	read := func(first, tenant string) (all []string) {
		for rec, err := range r.UsageSince(t.Context(), tip, first, tenant) {
			require.NoError(t, err)
			all = append(all, fmt.Sprint(rec.JobID, rec.OrgID))
		}
		return all
	}
	require.Equal(t, []string{"1physics", "2biology", "3", "4physics"}, read("", ""))
	require.Equal(t, []string{"1physics", "4physics"}, read("", "physics"))
	require.Equal(t, []string{"4physics"}, read("2026-11-02", "physics"))
	require.Equal(t, []string{"3", "4physics"}, read("2026-11-03", ""))
	require.Empty(t, read("", "chemistry"))
}
