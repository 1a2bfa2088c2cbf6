//go:build long

package slurm_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"berth/schema/usage"
)

// 100,000 jobs of a real accounting database are read and attributed within 10 s, and equal what
// slurmdbd has added up to the second (issue 16, figures).
func TestLongUsageOfManyJobs(t *testing.T) {
	l := newLedger(t)
	month := time.Date(2026, 10, 1, 0, 0, 0, 0, time.UTC)
	const jobs = 100_000
	l.past(t, jobs, month)
	began := time.Now()
	reading, err := l.read(t, month)
	require.NoError(t, err)
	read := time.Since(began)
	var records []usage.Record
	sums, got, runs := usage.NewSums(), amounts{}, map[usage.Run]bool{}
	next := month.AddDate(0, 1, 0)
	for _, j := range reading.Jobs {
		r := usage.New(l.unit.Effective.Key, usage.Record{AppSlug: "slurm"}, j, nil)
		records = append(records, r)
		runs[r.Run()] = true
		sums.Add(r)
	}
	files, err := usage.Files(records)
	require.NoError(t, err)
	all := sums.All(nil)
	took := time.Since(began)
	for _, j := range reading.Jobs {
		if !j.Started.Before(month) && j.Started.Before(next) {
			got.add(j)
		}
	}
	require.NotEmpty(t, all)
	t.Logf("%d runs in %d records, %d files: read in %v, attributed in %v", len(runs), len(records), len(files), read, took)
	require.Greater(t, len(runs), jobs*9/10)
	require.Equal(t, l.report(t, month, next), got)
	require.Less(t, took, 10*time.Second)
}
